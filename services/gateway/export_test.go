package gateway

import "github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"

// OpenStreams returns the number of open streams.
func (s *Service) OpenStreams() int { return s.streams.Count() }

// Routes returns all routes but those of the Connect service.
func (s *Service) Routes() []httpapi.Route { return s.described }
