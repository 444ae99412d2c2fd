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

// maxSource is the most that is read of a file: a plan with 10,000 networks has less than half of it.
const maxSource = 4 << 20

// source says how what the command line names becomes rules.
type source struct {
	ipv4Only, spare, anyway bool
	owner                   string
	pods                    []string
	dataplane               choice
}

// addSource gives the command the flags of a source.
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

// read returns what the argument names, once for each pod: the rules that a pod would get, those of a plan, or those that a live
// namespace holds. Warnings go to the command's standard error.
func (s *source) read(command *cobra.Command, argument string) ([]rules, error) {
	return s.readAs(command, argument, "", selection{names: s.pods})
}

// readAs is read with a prefix for all warnings, for the pods that are selected.
func (s *source) readAs(command *cobra.Command, argument, prefix string, selected selection) ([]rules, error) {
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

// readText reads a file, or the standard input.
func readText(command *cobra.Command, argument string) ([]byte, error) {
	if argument == "-" {
		return readAll(command.InOrStdin(), "the standard input")
	}
	file, err := os.Open(argument)
	if err != nil {
		return nil, err
	}
	text, err := readAll(file, argument)
	return text, errors.Join(err, file.Close())
}

func readAll(r io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSource+1))
	if err == nil && len(text) > maxSource {
		err = fmt.Errorf("it has more than %d bytes", maxSource)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}
