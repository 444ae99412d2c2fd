// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception"
)

// maxSource limits what is read of a file, in bytes: a plan with 10,000 networks has less than half
// of it.
const maxSource = 4 << 20

// source turns arguments of the command line into rules.
type source struct {
	ipv4Only, spare, anyway bool
	owner                   string
	pods                    []string
	dataplane               choice
}

// addSource adds the flags of a source to the command.
func addSource(command *cobra.Command) *source {
	s := &source{dataplane: newChoice("auto", "nftables", "iptables")}
	flags := command.Flags()
	flags.BoolVar(&s.ipv4Only, "ipv4-only", false, "plan for a namespace whose kernel has IPv6 disabled")
	flags.BoolVar(&s.spare, "spare", false, "plan for a pod that runs: leave its older TCP connections alone")
	flags.BoolVar(&s.anyway, "anyway", false, "plan also for a pod that would be left alone")
	flags.StringVar(&s.owner, "owner", "istio-cni", "whose plan it is; in a live namespace, whose rules are read")
	flags.StringArrayVar(&s.pods, "pod", nil, `a pod or workload of a manifest to look at: "cart", "shop/cart" or "Deployment shop/cart"`)
	s.dataplane.add(command, "dataplane", "", "where the rules of a live namespace are: nftables, iptables, or auto for where there are any")
	return s
}

// read returns the rules of what the argument names, once for each selected pod: those that the pod
// would get, those of a plan, or those in a live namespace. Warnings go to the command's standard
// error, with the prefix.
func (s *source) read(command *cobra.Command, argument, prefix string, selected selection) ([]rules, error) {
	if ns, live, err := openLive(argument); live {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", argument, err)
		}
		if err := selected.ofNone("a live namespace"); err != nil {
			return nil, fmt.Errorf("%s: %w", argument, errors.Join(err, ns.Close()))
		}
		found, err := s.readLive(command, ns)
		return []rules{found}, errors.Join(err, ns.Close())
	}
	text, err := readText(command, argument)
	if err != nil {
		return nil, err
	}
	all, err := s.parse(command, text, prefix, selected)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", argument, err)
	}
	return all, nil
}

func (s *source) readLive(command *cobra.Command, ns *interception.Netns) (rules, error) {
	readers, err := s.readers()
	if err != nil {
		return rules{}, err
	}
	state, err := observe(command.Context(), ns, interception.Owner(s.owner), readers, command.ErrOrStderr())
	if err != nil {
		return rules{}, err
	}
	addresses, err := addressesOf(ns)
	return rules{state: state, addresses: addresses}, err
}

func readText(command *cobra.Command, argument string) ([]byte, error) {
	r, name := command.InOrStdin(), "the standard input"
	if argument != "-" {
		file, err := os.Open(argument)
		if err != nil {
			return nil, err
		}
		defer file.Close() //nolint:errcheck // read only
		r, name = file, argument
	}
	text, err := io.ReadAll(io.LimitReader(r, maxSource+1))
	if err == nil && len(text) > maxSource {
		err = fmt.Errorf("it has more than %d bytes", maxSource)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

// podPairHelp explains --pod in commands that compare two sources.
const podPairHelp = `
With --pod, a source with several pods stands for the one of that name. Given
twice, the first is for the first source, and the second for the second.`

// readBoth reads two sources, each with one pod, plan or namespace.
func (s *source) readBoth(command *cobra.Command, arguments []string) (a, b rules, err error) {
	switch {
	case arguments[0] == "-" && arguments[1] == "-":
		return a, b, errors.New("the standard input can be read once only")
	case len(s.pods) > 2:
		return a, b, fmt.Errorf("--pod is given %d times, want once for each SOURCE at most", len(s.pods))
	}
	// A single name applies to each source that has several pods.
	first := selection{names: s.pods, lenient: true}
	second := first
	if len(s.pods) == 2 {
		first, second = selection{names: s.pods[:1]}, selection{names: s.pods[1:]}
	}
	if a, err = s.readOne(command, arguments[0], first); err != nil {
		return a, b, err
	}
	if b, err = s.readOne(command, arguments[1], second); err != nil {
		return a, b, err
	}
	if len(s.pods) == 1 && !isNamed(a.name, s.pods[0]) && !isNamed(b.name, s.pods[0]) {
		err = fmt.Errorf("no pod of either source is named %q: leave --pod out, or correct it", s.pods[0])
	}
	return a, b, err
}

// readOne reads one of two arguments, with one pod, plan or namespace. Warnings name the argument.
// A pod that is left alone has no rules to compare: that is printed, and is a finding.
func (s *source) readOne(command *cobra.Command, argument string, selected selection) (rules, error) {
	all, err := s.read(command, argument, argument+": ", selected)
	if err != nil {
		return rules{}, err
	}
	if len(all) > 1 {
		return rules{}, fmt.Errorf("%s: it has several pods: choose one with --pod: %s", argument, names(all))
	}
	if all[0].alone != nil {
		fmt.Fprintf(command.ErrOrStderr(), "%s: %v\n", argument, all[0].alone)
		return rules{}, errFindings
	}
	return all[0], nil
}
