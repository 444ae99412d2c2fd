// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/meshcni/meshcni/interception/plugin"

// version is set by the linker (-X main.version=...).
var version string

func main() { plugin.Main(plugin.Options{Version: version}) }
