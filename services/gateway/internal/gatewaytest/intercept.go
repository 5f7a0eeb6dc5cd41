package gatewaytest

import (
	"context"

	"google.golang.org/grpc"
)

// intercepted registers services with interceptors around their calls. nil ones are left out.
type intercepted struct {
	grpc.ServiceRegistrar

	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor
	ids    *idSequence
}

// RegisterService implements grpc.ServiceRegistrar.
func (i intercepted) RegisterService(desc *grpc.ServiceDesc, service any) {
	wrapped := *desc
	wrapped.Methods = nil
	for _, method := range desc.Methods {
		for _, interceptor := range []grpc.UnaryServerInterceptor{i.unary, i.ids.interceptor()} {
			if interceptor != nil {
				method.Handler = around(method.Handler, interceptor)
			}
		}
		wrapped.Methods = append(wrapped.Methods, method)
	}
	wrapped.Streams = nil
	for _, s := range desc.Streams {
		if next := s.Handler; i.stream != nil {
			info := &grpc.StreamServerInfo{
				FullMethod:     "/" + desc.ServiceName + "/" + s.StreamName,
				IsServerStream: s.ServerStreams,
				IsClientStream: s.ClientStreams,
			}
			s.Handler = func(service any, calls grpc.ServerStream) error { return i.stream(service, calls, info, next) }
		}
		wrapped.Streams = append(wrapped.Streams, s)
	}
	i.ServiceRegistrar.RegisterService(&wrapped, service)
}

// around runs the handler of a method within the interceptor.
func around(handler grpc.MethodHandler, inner grpc.UnaryServerInterceptor) grpc.MethodHandler {
	return func(service any, ctx context.Context, decode func(any) error, outer grpc.UnaryServerInterceptor) (any, error) {
		return handler(service, ctx, decode, func(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			within := func(ctx context.Context, r any) (any, error) { return inner(ctx, r, info, next) }
			if outer == nil {
				return within(ctx, r)
			}
			return outer(ctx, r, info, within)
		})
	}
}
