// SPDX-License-Identifier: Apache-2.0

// Meshplan shows what meshcni does with a pod's traffic, and why:
//
//	meshplan plan pod.yaml                            the rules that a pod gets
//	meshplan trace pod.yaml "tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8443"
//	                                                  where a packet ends, and which rule decides
//	meshplan explain pod.yaml tcp port 8443 in        which rules decide about them, and why
//	meshplan diff pod.yaml pid:4242                   how a running pod's rules differ
//
// A source is one of these: a file with Pods (YAML or JSON, as "kubectl get pod NAME -o yaml"
// prints them), Deployments and other workloads, which are reported separately under their names; a
// file with a plan (as "meshplan plan -o json" prints it); "-" for either on the standard input; or
// a live network namespace, as "pid:" with the id of a process in it or "netns:" with its path.
//
// # Goals
//
// Its answers about a pod match what the plugin would do. It changes nothing anywhere. Only live
// namespaces need Linux and root.
//
// # Non-goals
//
// It does not query an API server, and knows no node's settings. For example, it ignores excluded
// namespaces, which only the plugin checks.
package main
