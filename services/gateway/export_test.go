package gateway

// OpenStreams returns the number of open streams.
func (s *Service) OpenStreams() int { return s.streams.Count() }
