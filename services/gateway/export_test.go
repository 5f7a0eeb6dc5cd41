package gateway

// OpenStreams tells how many answers are open.
func (s *Service) OpenStreams() int { return s.streams.Count() }
