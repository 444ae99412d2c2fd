// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/ambient/agent/event"
)

const ambientStatusLong = `Status prints what the node's agent of ambient mode has decided about each pod, and
what it has seen in the kernel, at the proxy and in the host's sets. It changes
nothing. POD is NAMESPACE/NAME, or a UID.

ELIGIBLE is whether the pod is to be in the mesh, and why. RULES are "planned",
"draining", "other" or "none"; PROXY is "serves", "told", "untold" or
"lost" (its listeners are missing, and it is told of the pod anew); SET is whether
the host's sets have the pod's addresses. STATUS is what the agent calls the pod, and
ANNOTATION the pod's annotation that the API server told last. An annotation "enabled"
stays until the pod leaves the mesh. STEP is what is done or waited for, with its
error. Of one POD it also prints the rules of other programs that packets in the pod
pass before the agent's, and which of them set bits of the mesh's marks.

With --host it prints instead all that ambient mode has in the host's network
namespace, wherever pods are captured: rules, sets and their members with the pods'
UIDs, links, addresses, routes, policy rules and sysctls. It then asks no agent, and
looks at the kernel.

Exit codes: 0 each pod is as wanted, 1 the agent cannot be asked or the kernel cannot
be looked at, 2 wrong command line, 3 a pod is not as wanted, or the agent
does not know it, or the host has something that no plan has.`

const ambientStatusExample = `  # is every pod of this node as it should be?
  kubectl exec -n istio-system istio-cni-node-x7k2p -- install-cni ambient status

  # why is this pod not in the mesh?
  install-cni ambient status shop/web-0

  # what has the mesh put into the host's network?
  install-cni ambient status --host

  # for a script: what each pod waits for
  install-cni ambient status -o json | jq -r '.pods[] | select(.step) | .name + ": " + .step + " " + .error'`

func newAmbientStatusCommand(env environment) *cobra.Command {
	host := false
	command := &cobra.Command{
		Use:               "status [POD | --host]",
		Short:             "Tell what the agent has decided and seen of each pod",
		Long:              ambientStatusLong,
		Example:           ambientStatusExample,
		ValidArgsFunction: completePods(env),
		Args:              cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, args []string) error {
			format, loaded, _, err := readLeniently(command, env)
			if err != nil {
				return err
			}
			of, err := onePod(args)
			if err == nil && host && len(args) > 0 {
				err = &usageError{errors.New("--host is about the node: name no pod")}
			}
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), askTime)
			defer cancel()
			if host {
				return ambientHost(ctx, env.stdout, format, loaded.Settings.Repair.ProcDir)
			}
			node, err := event.Pods(ctx, loaded.Settings.EventSocket(), of)
			if err != nil {
				return hintAgent(err)
			}
			if len(node.Pods) == 0 && of != (event.Selection{}) {
				fmt.Fprintf(env.stderr, "install-cni: the agent knows no pod %s: see its name, and whether it is on this node\n", args[0])
			}
			if err := printAmbientStatus(env.stdout, format, node); err != nil {
				return err
			}
			return ambientRight(node, of)
		},
	}
	command.Flags().BoolVar(&host, "host", false, "print what is in the host's network namespace")
	addOutputFlag(command)
	return command
}

// ambientRight returns errNotRight unless each pod is as wanted, and so is the host.
func ambientRight(node event.Node, of event.Selection) error {
	if len(node.Pods) == 0 && of != (event.Selection{}) || !node.Complete || node.Host != "" {
		return errNotRight
	}
	for _, pod := range node.Pods {
		if pod.Step != "" || pod.Error != "" || pod.Eligible && pod.Status != "enabled" {
			return errNotRight
		}
	}
	return nil
}

func printAmbientStatus(to io.Writer, format string, node event.Node) error {
	if format == formatJSON {
		return printJSON(to, node)
	}
	fmt.Fprintln(to, "proxy:  "+proxyText(node.Proxy))
	fmt.Fprintln(to, "pods:   "+map[bool]string{
		true: "the agent has heard of all pods of the node", false: "the agent has not heard of all pods of the node yet",
	}[node.Complete])
	if node.Host != "" {
		fmt.Fprintln(to, "host:   "+node.Host)
	}
	if node.Withdrawn {
		fmt.Fprintln(to, "note:   all pods were withdrawn by command, until \"ambient withdraw --undo\" or the agent's next start")
	}
	fmt.Fprintln(to)
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "POD\tELIGIBLE\tRULES\tPROXY\tSET\tSTATUS\tANNOTATION\tSTEP\tSINCE")
	for _, pod := range node.Pods {
		fmt.Fprintln(table, strings.Join([]string{
			pod.String(), eligibility(pod), dash(pod.Rules), dash(pod.Listeners), inSets(pod), dash(pod.Status), dash(pod.Annotation),
			dash(pod.Step), sinceText(pod.Since),
		}, "\t"))
	}
	err := table.Flush()
	for _, pod := range node.Pods {
		if pod.Error != "" {
			fmt.Fprintf(to, "\n%s: %s\n", pod, pod.Error)
		}
		for _, warning := range pod.Warnings {
			fmt.Fprintf(to, "\n%s: warning: %s\n", pod, warning)
		}
		printForeign(to, pod)
	}
	return err
}

// printForeign prints what other programs have in a pod, as far as that was asked for.
func printForeign(to io.Writer, pod event.PodState) {
	if pod.ForeignError != "" {
		fmt.Fprintf(to, "\n%s: %s\n", pod, pod.ForeignError)
	}
	if len(pod.Foreign) == 0 {
		return
	}
	fmt.Fprintf(to, "\n%s: these rules of other programs come before the agent's:\n", pod)
	for _, chain := range pod.Foreign {
		fmt.Fprintln(to, "  "+chain.String())
		for _, rule := range chain.Rules {
			note := ""
			if slices.Contains(chain.Marks, rule) {
				note = "   <- sets bits of the mesh's marks"
			}
			fmt.Fprintln(to, "    "+rule+note)
		}
	}
}

func proxyText(proxy event.ProxyState) string {
	text := map[event.Connection]string{
		event.ProxyConnected: "connected", event.ProxyLost: "lost", event.ProxyNeverConnected: "has never connected since the agent began",
	}[proxy.Connection]
	text = cmp.Or(text, string(proxy.Connection))
	if !proxy.Since.IsZero() {
		text += " since " + sinceText(proxy.Since)
	}
	if proxy.Connections > 1 {
		text += fmt.Sprintf(", %d of them", proxy.Connections)
	}
	if proxy.Error != "" {
		text += "; the last connection that ended: " + proxy.Error
	}
	return text
}

func eligibility(pod event.PodState) string {
	if pod.Reason == "" {
		return "not known"
	}
	text := map[bool]string{true: "yes", false: "no"}[pod.Eligible] + ", " + string(pod.Reason)
	if pod.Detail != "" {
		text += " (" + pod.Detail + ")"
	}
	return text
}

func inSets(pod event.PodState) string {
	if !pod.Managed {
		return "-"
	}
	return map[bool]string{true: "yes", false: "no"}[pod.InSets]
}

func dash(text string) string { return cmp.Or(text, "-") }

func sinceText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
