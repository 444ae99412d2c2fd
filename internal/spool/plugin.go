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
