package stream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Probe asks the configured NATS servers for JetStream, and returns their version. It changes nothing. Unavailable
// (LOG_UNAVAILABLE): no server answers, it refuses the credentials, or it has no JetStream.
func Probe(ctx context.Context, c Config) (version string, err error) {
	options := []nats.Option{nats.Name("holdfast-probe"), nats.NoReconnect()}
	if c.NATSCreds != "" {
		options = append(options, nats.UserCredentials(c.NATSCreds))
	}
	nc, err := nats.Connect(c.NATSURL, options...)
	if err != nil {
		return "", unanswered(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}
	if err != nil {
		return "", unanswered(err)
	}
	return nc.ConnectedServerVersion(), nil
}

func unanswered(err error) error {
	return fmt.Errorf("probe NATS: %w", fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "NATS with JetStream does not answer: %v", err))
}
