// SPDX-License-Identifier: Apache-2.0

package version

import "runtime/debug"

// version is set by the linker: -X github.com/meshcni/meshcni/internal/version.version=….
var version string

// String returns the version that the linker has set or, without one, the main module's, as go
// install sets it; empty if neither is known.
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}
