// SPDX-License-Identifier: Apache-2.0

// Meshplan shows what meshcni does with a pod's traffic, and why:
//
//	meshplan plan pod.yaml                                  the rules that a pod gets
//	meshplan trace pod.yaml "tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8443"
//	                                                        where a packet ends, and which rule decides
//	meshplan diff pod.yaml pod-new.yaml                     what another annotation changes
//
// A source is a file with a Pod (YAML or JSON, as "kubectl get pod NAME -o yaml" prints it) or a plan (as "meshplan plan -o json"
// prints it), or "-" for one of these on the standard input.
//
// # Goals
//
// What it says of a pod is what the plugin would do. It needs no root and no Linux, and changes nothing anywhere.
//
// # Non-goals
//
// It asks no API server, and knows no node's settings: excluded namespaces, for example, are the plugin's business.
package main
