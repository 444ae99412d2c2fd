// SPDX-License-Identifier: Apache-2.0

// Package fakenode makes a node's directories, for tests that find the network namespaces of pods.
// The namespaces are real; the processes are only files in proc. It is for tests only.
package fakenode
