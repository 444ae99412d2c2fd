// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

const statusLong = `Status compares what is on the node with what the settings want: the binaries,
the plugin's kubeconfig, and its entry in the CNI configuration that the
container runtime uses. It asks a daemon that runs, at health-address, how its parts
are, as /readyz says it. It changes nothing.

A bad value in the settings directory or the environment is refused with a warning,
and the value with which the daemon works is used, or the default.

Exit codes: 0 everything is as it should be and a daemon that runs is ready, 2 wrong
command line, 3 something is missing, differs, waits, is refused, not ready or
unknown; each is named.`

const statusExample = `  # is the plugin in place, and in which file?
  kubectl exec -n istio-system istio-cni-node-x7k2p -- install-cni status

  # all nodes, for a script
  install-cni status -o json | jq -r '.findings[] | select(.state != "ok") | .path + ": " + .reason'

  # why is the node not ready?
  install-cni status -o json | jq -r '.daemon.parts[] | select(.ready | not) | .part + ": " + .reason'`

// errNotRight makes the program exit with exitNotRight; what is wrong was printed already.
var errNotRight = errors.New("the node differs from the settings")

func newStatusCommand(env environment) *cobra.Command {
	command := &cobra.Command{
		Use:     "status",
		Short:   "Compare what is on the node with what the settings want",
		Long:    statusLong,
		Example: statusExample,
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			format, loaded, refused, err := readLeniently(command, env)
			if err != nil {
				return err
			}
			report, err := inspect(command, env, loaded.Settings)
			if err != nil {
				return err
			}
			report.compare(loaded)
			report.Right = report.Right && !refused
			report.ask(command.Context(), env, loaded.Settings)
			if err := printStatus(env, format, report); err != nil {
				return err
			}
			if !report.Right {
				return errNotRight
			}
			return nil
		},
	}
	addOutputFlag(command)
	return command
}

// nodeStatus is what is on the node, how the daemon's parts are, and which settings it has not
// applied. Right means all three.
type nodeStatus struct {
	installer.Status
	// Daemon is what the daemon says of itself; nil if none answers.
	Daemon *health.Report `json:"daemon,omitempty"`
	// NoAnswer is why a daemon that is at work on the node has not said.
	NoAnswer string `json:"noAnswer,omitempty"`
	// Offers are values of settings that the daemon has not applied.
	Offers []settings.ReportedValue `json:"offers,omitempty"`
}

func inspect(command *cobra.Command, env environment, s settings.Settings) (nodeStatus, error) {
	node, err := env.installer(slog.New(slog.DiscardHandler), s)
	if err != nil {
		return nodeStatus{}, &usageError{err}
	}
	report := nodeStatus{Status: node.Inspect(env.watched(command.Context()))}
	for i, f := range report.Findings {
		if f.Err != nil {
			report.Findings[i].Reason = hint(f.Err, s).Error()
		}
	}
	return report, nil
}

// compare adds the values that the daemon has not applied, and those that are refused here.
func (r *nodeStatus) compare(loaded settings.Loaded) {
	recorded, err := settings.Recorded(loaded.Settings.RunDir)
	if err == nil { // otherwise no daemon has left a report
		for _, value := range recorded.Settings {
			if value.Offer != nil {
				r.Offers = append(r.Offers, value)
			}
		}
	}
	for _, value := range loaded.Report().Refused() {
		known := func(other settings.ReportedValue) bool { return other.Name == value.Name }
		if !slices.ContainsFunc(r.Offers, known) {
			r.Offers = append(r.Offers, value)
		}
	}
	refused := func(value settings.ReportedValue) bool { return value.Offer.Error != "" }
	r.Right = r.Right && !slices.ContainsFunc(r.Offers, refused)
}

func printStatus(env environment, format string, report nodeStatus) error {
	if format == formatJSON {
		return printJSON(env.stdout, report)
	}
	fmt.Fprintln(env.stdout, "daemon:  "+map[bool]string{true: "at work on this node", false: "none at work on this node"}[report.Running])
	if ready := report.readiness(); ready != "" {
		fmt.Fprintln(env.stdout, "ready:   "+ready)
	}
	if claim := report.Claim; claim != nil {
		fmt.Fprintf(env.stdout, "claim:   by %s, version %s, since %s", claim.Owner, claim.Version, claim.Since.Format(time.RFC3339))
		if len(claim.Configs) > 0 {
			fmt.Fprintf(env.stdout, ", in %s", strings.Join(claim.Configs, ", "))
		}
		fmt.Fprintln(env.stdout)
	} else {
		fmt.Fprintln(env.stdout, "claim:   none; nothing is recorded as installed")
	}
	if report.Uninstalled != nil {
		fmt.Fprintf(env.stdout, "note:    the plugin was uninstalled at %s, and lets every pod pass\n", report.Uninstalled.Format(time.RFC3339))
	}
	for _, value := range report.Offers {
		fmt.Fprintf(env.stdout, "setting: %s is %s, %s\n", value.Name, shown(value.Value), note(value))
	}
	fmt.Fprintln(env.stdout)
	if err := printFindings(env.stdout, report.Findings); err != nil || report.Daemon == nil {
		return err
	}
	fmt.Fprintln(env.stdout)
	return printParts(env.stdout, report.Daemon.Parts)
}

func printFindings(to io.Writer, findings []installer.Finding) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STATE\tPART\tFILE\tREASON")
	for _, f := range findings {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.State, f.Part, f.Path, f.Reason)
	}
	return table.Flush()
}
