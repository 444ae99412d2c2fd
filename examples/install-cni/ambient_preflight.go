// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight/look"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
)

const ambientPreflightLong = `Preflight looks for what will keep ambient mode from working on this node, before any
pod is captured: the CNI configurations, the host's links with their eBPF programs,
addresses and policy rules, and whether the kernel can have the rules, which are
tried in a network namespace that is thrown away. It changes nothing, and does not
ask the API server: to look at NetworkPolicies, give them in a file. With
--ambient-mode=node it looks for what keeps the node's own namespace from capturing
pods, to which NetworkPolicies are as without the mesh.

Each finding has a stable code, what was seen, and what to do.

Exit codes: 0 nothing was found, 1 failure, 2 wrong command line or setting, 3 there
are findings.`

const ambientPreflightExample = `  # can this node have ambient mode?
  kubectl exec -n istio-system istio-cni-node-x7k2p -- install-cni ambient preflight

  # can its own namespace capture pods?
  install-cni ambient preflight --ambient-mode=node

  # do NetworkPolicies block the mesh?
  kubectl get networkpolicies -A -o json > policies.json
  install-cni ambient preflight --network-policies=policies.json`

func newAmbientPreflightCommand(env environment) *cobra.Command {
	policies := ""
	command := &cobra.Command{
		Use:     "preflight",
		Short:   "Look for what will keep ambient mode from working on this node",
		Long:    ambientPreflightLong,
		Example: ambientPreflightExample,
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			format, loaded, err := readCommand(command, env) // it judges the settings, so a bad one is an error
			if err != nil {
				return err
			}
			var given []preflight.NetworkPolicy
			if policies != "" {
				if given, err = readPolicies(policies); err != nil {
					return &usageError{fmt.Errorf("--network-policies=%s: %w", policies, err)}
				}
			}
			s := loaded.Settings
			s.Ambient.Enabled = true // what would be, even if it is not yet
			config, err := s.AmbientConfig()
			if err != nil {
				return &usageError{err}
			}
			view := env.look(command.Context(), look.Options{NetDir: s.NetDir, Proc: s.Repair.ProcDir, Settings: *config})
			view.Policies = given
			found, err := findings(view, *config)
			if err != nil {
				return err
			}
			if err := printPreflight(env.stdout, format, found); err != nil {
				return err
			}
			if len(found) > 0 {
				return errNotRight
			}
			return nil
		},
	}
	command.Flags().StringVar(&policies, "network-policies", "", "file with what \"kubectl get networkpolicies -A -o json\" prints")
	addOutputFlag(command)
	return command
}

// findings returns what keeps ambient mode from working where the settings have pods captured.
func findings(view preflight.View, config ambientconf.Config) ([]preflight.Finding, error) {
	if config.OnNode() {
		return preflight.NodeFindings(view, ambientconf.NodeNumbers(), config.ProxyWay())
	}
	return preflight.Findings(view, ambient.IstioNumbers()), nil
}

func readPolicies(path string) ([]preflight.NetworkPolicy, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return preflight.ParsePolicies(text)
}

// preflightReport is what was found, as JSON.
type preflightReport struct {
	Findings []preflight.Finding `json:"findings"`
}

func printPreflight(to io.Writer, format string, found []preflight.Finding) error {
	if format == formatJSON {
		return printJSON(to, preflightReport{Findings: append([]preflight.Finding{}, found...)})
	}
	if len(found) == 0 {
		fmt.Fprintln(to, "nothing was found that keeps ambient mode from working")
	}
	for _, f := range found {
		fmt.Fprintf(to, "%s: %s\n  do: %s\n", f.Code, f.Seen, f.Do)
	}
	return nil
}
