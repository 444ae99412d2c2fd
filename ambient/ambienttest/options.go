// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/zds"
)

// ProxyOptions are the settings of a [Proxy].
type ProxyOptions struct {
	// Socket is the path of the agent's socket.
	Socket string
	// Numbers are the marks and ports to use; usually [ambient.IstioNumbers].
	Numbers ambient.Numbers
	// Transparent makes the listeners transparent, as rules with TPROXY require, which Istio wrote
	// until 1.24.
	Transparent bool
	// Refuse returns why the proxy refuses to serve a pod, or "". It may be nil. A pod that was
	// refused is not retried by itself.
	Refuse func(zds.Workload) string
}
