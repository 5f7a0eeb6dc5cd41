package gateway

import "github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"

// OpenStreams returns the number of open streams.
func (s *Service) OpenStreams() int { return s.streams.Count() }

// Routes returns all routes but those of the Connect service.
func (s *Service) Routes() []httpapi.Route { return s.described }

// HoldBody reserves memory for a request body of the tenant, of that many bytes, until release is called.
func (s *Service) HoldBody(tenant string, bytes int64) (release func(), err error) {
	reservation := s.bodies.Reserve(tenant)
	return reservation.Release, reservation.Grow(bytes)
}
