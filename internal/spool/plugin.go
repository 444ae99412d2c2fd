// SPDX-License-Identifier: Apache-2.0

package spool

import "path/filepath"

// maxPlugin is how large a spool of the plugin's may be.
const maxPlugin = 1 << 20

// PluginLog is where the CNI plugin of a name keeps lines of its log for a node agent that isn't there, in the agent's run directory.
func PluginLog(runDir, name string) Spool {
	return Spool{Path: filepath.Join(runDir, name+".log"), MaxBytes: maxPlugin}
}

// PluginResults is where it keeps what its commands came to, each a line of JSON as on the agent's socket.
func PluginResults(runDir, name string) Spool {
	return Spool{Path: filepath.Join(runDir, name+".results"), MaxBytes: maxPlugin}
}

// IstioLogSocket is the socket in the run directory at which Istio's node agent, and install-cni in
// its place, takes log lines that are not spooled: POST /log, an array of strings, each a line of
// JSON as Istio's own plugin logs it (istio/istio, cni/pkg/log/uds.go). The protocol has no version.
const IstioLogSocket = "log.sock"
