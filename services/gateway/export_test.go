package gateway

import "github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"

// OpenStreams returns the number of open streams.
func (s *Service) OpenStreams() int { return s.streams.Count() }

// Routes returns all routes but those of the Connect service.
func (s *Service) Routes() []httpapi.Route { return s.described }

// HoldBody holds the memory of a request body of the tenant, of that many bytes, until release is called.
func (s *Service) HoldBody(tenant string, bytes int64) (release func(), err error) {
	held := s.bodies.Reserve(tenant)
	return held.Release, held.Grow(bytes)
}
