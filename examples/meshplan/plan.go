// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

const planLong = `Plan prints the rules that a Pod gets, a plan has or a live namespace holds.

The forms: "table" is for people; "text" has everything, the annotation behind
each rule too; "json" is read by the other commands; "nft", "iptables" and
"ip6tables" are what nft(8), iptables-restore(8) and ip6tables-restore(8) take;
"mermaid" is a picture of the chains for a document.`

const planExample = `  # what does this pod get?
  kubectl get pod cart-0 -o yaml | meshplan plan -

  # the same for nft
  meshplan plan pod.yaml -o nft

  # what does the running pod have?
  meshplan plan pid:4242`

func newPlanCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "plan SOURCE",
		Short:   "Print the rules of a pod or a namespace",
		Long:    planLong,
		Example: planExample,
		Args:    arguments(1, 1, "one SOURCE"),
	}
	source := addSource(command)
	form := addOutput(command, "table", "text", "json", "nft", "iptables", "ip6tables", "mermaid")
	command.RunE = func(command *cobra.Command, args []string) error {
		state, err := source.read(command, args[0])
		if err != nil {
			return leftAlone(command, err)
		}
		return writePlan(command, state.Plan(), form.value)
	}
	return command
}

func writePlan(command *cobra.Command, plan *interception.Plan, form string) error {
	var text []byte
	var err error
	switch form {
	case "json":
		return writeJSON(command.OutOrStdout(), plan)
	case "text":
		text = []byte(plan.String())
	case "nft":
		text, err = render.NFT(plan)
	case "iptables":
		text, err = render.IPTablesRestore(plan, interception.IPv4)
	case "ip6tables":
		text, err = render.IPTablesRestore(plan, interception.IPv6)
	case "mermaid":
		text = []byte(render.Mermaid(plan))
	default:
		text = []byte(render.Table(plan))
	}
	if err != nil {
		return fmt.Errorf("the plan has no such form: %w", err)
	}
	_, err = command.OutOrStdout().Write(text)
	return err
}
