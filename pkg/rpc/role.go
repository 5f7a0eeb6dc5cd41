package rpc

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Role is the kind of a caller. It decides which methods the caller may call.
type Role string

// The roles of callers.
const (
	RoleGateway  Role = "gateway"
	RoleExecutor Role = "executor"
	RoleOperator Role = "operator" // people and their tools
	// RoleAny may call every method: the holder of the one shared token, and callers of a server that asks for no
	// credentials or of the same process.
	RoleAny Role = "any"
)

// roles are the valid roles of a token or a certificate.
var roles = []Role{RoleGateway, RoleExecutor, RoleOperator, RoleAny}

// roleKey is the context key of the caller's role.
type roleKey struct{}

// RoleOf returns the role of the caller of a handler. Outside of a handler it is RoleAny.
func RoleOf(ctx context.Context) Role {
	if role, ok := ctx.Value(roleKey{}).(Role); ok {
		return role
	}
	return RoleAny
}

// The options with the callers of a method, and of a service's methods without an own option.
const (
	methodOption  protoreflect.FullName = "holdfast.event.v1.roles"
	serviceOption protoreflect.FullName = "holdfast.event.v1.service_roles"
)

// MethodRoles returns the roles that may call each method of a service beside RoleAny, by full method name. The contract
// names them: a method's option replaces that of its service. Methods without either are missing, and only RoleAny
// may call them.
func MethodRoles(service protoreflect.ServiceDescriptor) map[string][]Role {
	allowed := map[string][]Role{}
	common := namedRoles(service.Options(), serviceOption)
	methods := service.Methods()
	for i := range methods.Len() {
		method := methods.Get(i)
		named := namedRoles(method.Options(), methodOption)
		if len(named) == 0 {
			named = common
		}
		if len(named) > 0 {
			allowed["/"+string(service.FullName())+"/"+string(method.Name())] = named
		}
	}
	return allowed
}

func namedRoles(options proto.Message, name protoreflect.FullName) (named []Role) {
	option, err := protoregistry.GlobalTypes.FindExtensionByName(name)
	if err != nil { // no contract of this process uses it
		return nil
	}
	texts := options.ProtoReflect().Get(option.TypeDescriptor()).List()
	for i := range texts.Len() {
		named = append(named, Role(texts.Get(i).String()))
	}
	return named
}

// permissions are the roles with access to the methods of a server.
type permissions map[string][]Role

// add adds a service. A service without a contract gets no entries.
func (p permissions) add(service string) {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return
	}
	descriptor, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return
	}
	for method, allowed := range MethodRoles(descriptor) {
		p[method] = allowed
	}
}

// check gives Denied (ROLE_REFUSED).
func (p permissions) check(role Role, method string) error {
	if role == RoleAny || slices.Contains(p[method], role) {
		return nil
	}
	return fault.New(fault.Denied, "ROLE_REFUSED", "the role %s may not call %s", role, method)
}
