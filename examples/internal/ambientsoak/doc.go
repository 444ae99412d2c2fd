// SPDX-License-Identifier: Apache-2.0

// Package ambientsoak has nothing but a test: a node in ambient mode on which pods come and go,
// make connections all the time, and everything fails that can.
//
//	API server (fakecluster) <-- node-watcher --feed--> node-ambient <-- proxy (ambienttest)
//	                                                      |      ^
//	                              rules in pods, host's sets     `-- pods' ADDs
//
// The programs are the real ones, as processes: install-cni starts node-watcher and node-ambient.
// After each fault, and at the end, all must be right again: for each pod of the mesh the kernel
// holds its plan, the proxy has its listeners, the host's sets have its addresses, and its status
// says so; nothing is left of any other pod; the agent holds no descriptor and no record more than
// it needs; rules of other programs are as they were.
//
// Each pod has a witness, a table of another program, that counts the connections that pass
// uncaptured. From the moment on that a pod is enrolled, it must count none.
//
// A run chooses what it does by a seed, which it prints. make ambient-soak runs as long as it is
// told to, with 200 pods; make test has each fault once, with a few.
//
// # Non-goals
//
// The test judges no speed other than that of the recovery, and there is no Kubernetes.
package ambientsoak
