// SPDX-License-Identifier: Apache-2.0

// Package scenario is what the end-to-end tests are written with: a cluster that all of them share, pods to put into it, and what is asked
// of them.
//
//	func TestMain(m *testing.M) { os.Exit(scenario.Main(m, &suite)) }
//
//	func TestDeployment(t *testing.T) {
//		s := suite.Begin(t)
//		server := s.Deploy(scenario.Workload{Name: "server", Injected: true})
//		client := s.Deploy(scenario.Workload{Name: "client", Injected: true})
//		s.Expect(client, server, 8080, "outbound client", "inbound server")
//	}
//
// Each scenario has a namespace of its own, which goes with it. When one fails, the objects of the cluster and the events are written beside
// the components' logs.
//
// # Goals
//
// A scenario says what it is about, and nothing else. What it waits for is a state, never a time.
//
// # Non-goals
//
// Scenarios side by side that change nodes or the installation. Those that only have pods of their own may call t.Parallel: they run
// when all others have ended. What the product is to be like, a scenario says at its begin ([Suite.Begin], [Suite.BeginWith]), and
// leaves it as it likes; what else it changes, it puts right again.
package scenario
