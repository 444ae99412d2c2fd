// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

// ask asks the daemon how its parts are. Without a daemon at work on the node, there need be no
// answer.
func (r *nodeStatus) ask(ctx context.Context, env environment, s settings.Settings) {
	address := healthAddress(s)
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	said, err := health.Ask(ctx, env.dial, address)
	switch {
	case err == nil:
		r.Daemon = said
		r.Right = r.Right && said.Ready
	case r.Running:
		r.NoAnswer = fmt.Sprintf("no answer of the daemon at health-address, %s: %v; run this command in the daemon's "+
			"container (kubectl exec), and give health-address a port other than 0", address, err)
		r.Right = false
	}
}

// healthAddress returns where the running daemon serves /readyz: it may have a flag that this
// command does not.
func healthAddress(s settings.Settings) string {
	recorded, err := settings.Recorded(s.RunDir)
	if err != nil {
		return s.HealthAddress
	}
	for _, value := range recorded.Settings {
		if value.Name == "health-address" {
			return value.Value
		}
	}
	return s.HealthAddress
}

// readiness says in a line what the daemon has said; empty if there is none.
func (r *nodeStatus) readiness() string {
	switch {
	case r.NoAnswer != "":
		return "unknown: " + r.NoAnswer
	case r.Daemon == nil:
		return ""
	case r.Daemon.Ready:
		return "yes"
	}
	return "no; the parts say why"
}

func printParts(to io.Writer, conditions []health.Condition) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "READY\tPART\tREASON")
	for _, c := range conditions {
		ready, reason := map[bool]string{true: "yes", false: "no"}[c.Ready], c.Reason
		if c.Auxiliary && !c.Ready {
			ready = "not needed"
		}
		if c.Contested != "" {
			reason += map[bool]string{true: "", false: "; "}[reason == ""] + c.Contested
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", ready, c.Part, reason)
	}
	return table.Flush()
}
