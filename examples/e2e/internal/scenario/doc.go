// SPDX-License-Identifier: Apache-2.0

// Package scenario provides what the end-to-end tests are written with: a cluster shared by all,
// pods to run in it, and checks.
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
// Each scenario has its own namespace, which is deleted at its end. If a scenario fails, the
// cluster's objects and events are written beside the components' logs.
//
// # Goals
//
// A scenario contains only what it is about. It waits for states, never for a fixed time.
//
// # Non-goals
//
// Parallel scenarios that change nodes or the installation. Scenarios with only their own pods may
// call t.Parallel: they run after all others have ended. Each scenario chooses the product's values
// when it begins ([Suite.Begin], [Suite.BeginWith]), and need not restore them. It restores all
// else that it changes.
package scenario
