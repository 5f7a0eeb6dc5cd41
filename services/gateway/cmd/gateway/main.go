// Command gateway serves the public HTTP interfaces.
package main

import "github.com/holdfast-run/holdfast/services/gateway"

func main() { gateway.Main(gateway.Peers{}) }
