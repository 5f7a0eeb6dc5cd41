package outbound

import (
	"net/netip"
	"testing"
)

func TestOnlyPublicAddressesCountAsPublic(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "0.0.0.0": false,
		"100.64.0.1": false, "192.0.0.8": false, "198.18.0.1": false, "224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false,
		"::1": false, "::": false, "fe80::1": false, "fc00::1": false, "ff02::1": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "fec0::1": false,
		"::127.0.0.1": false, "::a9fe:a9fe": false, "::8.8.8.8": false, "168.63.129.16": false, "168.63.129.17": true,
	} {
		if got := public(netip.MustParseAddr(address)); got != want {
			t.Errorf("public(%s) = %v, want %v", address, got, want)
		}
	}
	p := Policy{Hosts: []string{"api.example.com"}}
	if err := p.checkAddress("api.example.com", "443", netip.MustParseAddr("::ffff:169.254.169.254")); err == nil {
		t.Error("a public name that resolves to a private address is reached")
	}
}
