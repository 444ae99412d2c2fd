// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

const planLong = `Plan prints the rules that a Pod gets, a plan has or a live namespace holds.

The forms: "table" is for people; "text" has everything, with the annotation of
each rule; "json" of one pod is read by the other commands, and of several pods
it is a list with their names; "nft", "iptables" and "ip6tables" are what nft(8),
iptables-restore(8) and ip6tables-restore(8) take; "mermaid" is a picture of the
chains for a document.`

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
		Args:    cobra.ExactArgs(1),
	}
	source := addSource(command)
	form := addOutput(command, "table", "text", "json", "nft", "iptables", "ip6tables", "mermaid")
	command.RunE = func(command *cobra.Command, args []string) error {
		return source.print(command, args[0], form, func(r rules) (answer, error) {
			text, err := planText(r.state.Plan(), form.value)
			if err != nil {
				return answer{}, fmt.Errorf("the plan has no such form: %w", err)
			}
			strange := othersOnly(r.state)
			if strange != "" {
				fmt.Fprintln(command.ErrOrStderr(), strange)
			}
			return answer{text: text, view: r.state.Plan(), findings: strange != ""}, nil
		})
	}
	return command
}

// planText returns a plan in a form other than JSON.
func planText(plan *interception.Plan, form string) (string, error) {
	var text []byte
	var err error
	switch form {
	case "text":
		return plan.String(), nil
	case "nft":
		text, err = render.NFT(plan)
	case "iptables":
		text, err = render.IPTablesRestore(plan, interception.IPv4)
	case "ip6tables":
		text, err = render.IPTablesRestore(plan, interception.IPv6)
	case "mermaid":
		return render.Mermaid(plan), nil
	default:
		return render.Table(plan), nil
	}
	return string(text), err
}
