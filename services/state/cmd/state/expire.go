package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// summary is the printed result, with the field names of the specification.
type summary struct {
	Detected         int32 `json:"detected"`
	Marked           int32 `json:"marked"`
	AlreadyTerminal  int32 `json:"alreadyTerminal"`
	SnapshotsDeleted int32 `json:"snapshotsDeleted"`
	Errors           int32 `json:"errors"`
}

// expire asks a state service to expire sessions, and prints the result as JSON. It fails if a
// session could not be expired.
func expire(ctx context.Context, network rpc.Network, args, environ []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("expire", flag.ContinueOnError)
	flags.SetOutput(stderr)
	address := flags.String("address", "127.0.0.1:7411", "where the state service listens, host:port")
	limit := flags.Int("limit", 0, "most sessions to expire; 0 for the service's default")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return fault.New(fault.Invalid, "FLAG_INVALID", "%v", err)
	}
	if flags.NArg() > 0 || *limit < 0 || *limit > math.MaxInt32 {
		return fault.New(fault.Invalid, "FLAG_INVALID", "state expire [--address host:port] [--limit N], with an N of 0 or more")
	}
	sum, err := callExpire(ctx, network, *address, int32(*limit), environ)
	if err != nil {
		return fmt.Errorf("expire sessions at %s: %w", *address, err)
	}
	if err := json.NewEncoder(stdout).Encode(sum); err != nil {
		return fmt.Errorf("print the summary: %w", err)
	}
	if sum.Errors > 0 {
		return fmt.Errorf("%d sessions could not be expired; see the log of the state service", sum.Errors)
	}
	return nil
}

// callExpire calls the service with the token and the certificates shared by the processes of
// Holdfast.
func callExpire(ctx context.Context, network rpc.Network, address string, limit int32, environ []string) (sum summary, err error) {
	var c struct {
		Internal rpc.Security `envPrefix:"HOLDFAST_INTERNAL_"`
	}
	if err := config.Load(&c, environ); err != nil {
		return summary{}, err
	}
	conn, err := rpc.Dial(network, address, rpc.ClientConfig{Security: c.Internal})
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	answer, err := statev1.NewOperatorServiceClient(conn).ExpireSessions(ctx, &statev1.ExpireSessionsRequest{Limit: limit})
	if err != nil {
		return summary{}, err
	}
	return summary{
		Detected: answer.GetDetected(), Marked: answer.GetMarked(), AlreadyTerminal: answer.GetAlreadyTerminal(),
		SnapshotsDeleted: answer.GetSnapshotsDeleted(), Errors: answer.GetErrors(),
	}, nil
}
