package gatewaytest

// Cut says how a stream service is cut off from its log. Its calls stay open.
type Cut int

const (
	CutNothing Cut = iota
	// CutLive: who follows is given nothing any more; a history read finds all.
	CutLive
	// CutWhole: CutLive, and a history read is refused with LOG_UNAVAILABLE.
	CutWhole
)

// CutOff cuts the service off from its log.
func (s *Stream) CutOff(c Cut) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = c
	s.wake()
}
