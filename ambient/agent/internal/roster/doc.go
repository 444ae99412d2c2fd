// SPDX-License-Identifier: Apache-2.0

// Package roster has what an agent of ambient mode has been told of the pods of its node, and how a
// pod's event waits for the agent. Packages [github.com/meshcni/meshcni/ambient/agent] and nodemode
// share it: they differ in where they capture a pod, and not in which pods they capture.
package roster
