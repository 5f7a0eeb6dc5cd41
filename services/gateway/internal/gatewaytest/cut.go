package gatewaytest

// Cut says how a stream service is cut off from its log. Its calls stay open.
type Cut int

// The cuts. With CutLive, who follows is given nothing any more, and a history
// read finds all. With CutWhole, a history read is refused with LOG_UNAVAILABLE
// as well.
const (
	CutNothing Cut = iota
	CutLive
	CutWhole
)

// CutOff cuts the service off from its log.
func (s *Stream) CutOff(c Cut) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = c
	s.wake()
}
