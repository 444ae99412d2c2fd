// SPDX-License-Identifier: Apache-2.0

// Package fakenode has a node's directories, for tests that find the network namespaces of pods:
// the namespaces are real, the processes are just files in proc. It is for tests only.
package fakenode
