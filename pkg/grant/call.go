package grant

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// header is the metadata key of a call's grant.
const header = "holdfast-grant-bin"

// Attach returns the option that sends a signed grant with a call whose request has no field for it. An empty grant
// sends nothing. Calls within a process need no grant and send none.
func Attach(signed []byte) grpc.CallOption {
	return grpc.PerRPCCredentials(attached(signed))
}

// attached implements credentials.PerRPCCredentials.
type attached []byte

func (a attached) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if len(a) == 0 {
		return nil, nil
	}
	return map[string]string{header: string(a)}, nil
}

func (attached) RequireTransportSecurity() bool { return false }

// FromContext returns the signed grant of a call; nil for none.
func FromContext(ctx context.Context) []byte {
	if values := metadata.ValueFromIncomingContext(ctx, header); len(values) > 0 {
		return []byte(values[0])
	}
	return nil
}
