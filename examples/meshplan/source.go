// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// maxSource is the most that is read of a file: a plan with 10,000 networks has less than half of it.
const maxSource = 4 << 20

// source says how what the command line names becomes rules.
type source struct {
	ipv4Only, spare, anyway bool
	owner                   string
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
	s.dataplane.add(command, "dataplane", "", "where the rules of a live namespace are: nftables, iptables, or auto for where there are any")
	return s
}

// notCapturedError means that the pod has no plan.
type notCapturedError struct{ decision interception.Decision }

func (e *notCapturedError) Error() string {
	return fmt.Sprintf("the pod is left alone: %s; to plan it all the same, add --anyway", e.decision)
}

// read returns what the argument names: the rules that a pod would get, those of a plan, or those that a live namespace holds. Warnings
// go to the command's standard error.
func (s *source) read(command *cobra.Command, argument string) (interception.State, error) {
	if ns, live, err := openLive(argument); live {
		if err != nil {
			return interception.State{}, fmt.Errorf("%s: %w", argument, err)
		}
		readers, err := s.readers()
		if err != nil {
			return interception.State{}, errors.Join(err, ns.Close())
		}
		state, err := observe(command.Context(), ns, interception.Owner(s.owner), readers, command.ErrOrStderr())
		return state, errors.Join(err, ns.Close())
	}
	text, err := readText(command, argument)
	if err != nil {
		return interception.State{}, err
	}
	plan, err := s.parse(command, text)
	if err != nil {
		return interception.State{}, fmt.Errorf("%s: %w", argument, err)
	}
	return interception.State{Owner: plan.Owner, Objects: plan.Objects}, nil
}

// readBoth reads two sources.
func (s *source) readBoth(command *cobra.Command, arguments []string) (a, b interception.State, err error) {
	if arguments[0] == "-" && arguments[1] == "-" {
		return a, b, usage(command, errors.New("the standard input can be read once only"))
	}
	if a, err = s.read(command, arguments[0]); err != nil {
		return a, b, err
	}
	b, err = s.read(command, arguments[1])
	return a, b, err
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

// parse makes a plan of a text: a Pod has a kind, a plan an owner.
func (s *source) parse(command *cobra.Command, text []byte) (*interception.Plan, error) {
	object, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("neither YAML nor JSON: %w", err)
	}
	var form struct{ Kind, Owner string }
	if err := json.Unmarshal(object, &form); err != nil {
		return nil, fmt.Errorf("neither a Pod nor a plan: %w", err)
	}
	switch {
	case form.Owner != "":
		plan := &interception.Plan{}
		return plan, json.Unmarshal(object, plan)
	case form.Kind == "":
		return nil, errors.New(`neither a Pod (it has no "kind") nor a plan (it has no "owner")`)
	default:
		pod, err := podsource.ParsePod(object)
		if err != nil {
			return nil, err
		}
		return s.plan(command, pod)
	}
}

// plan does what the plugin does.
func (s *source) plan(command *cobra.Command, pod interception.Pod) (*interception.Plan, error) {
	dialect := interception.Istio()
	decision := interception.Decide(pod, interception.Policy{Membership: dialect.Membership})
	if !decision.Capture && !s.anyway {
		return nil, &notCapturedError{decision}
	}
	redirect, warnings, err := dialect.Parse(pod)
	if err != nil {
		return nil, err
	}
	for _, warning := range warnings {
		fmt.Fprintf(command.ErrOrStderr(), "warning: %v\n", warning)
	}
	if s.spare {
		redirect.Existing = interception.ExistingSpare
	}
	return interception.PlanSidecar(redirect, interception.Facts{IPv6: !s.ipv4Only}, interception.Owner(s.owner))
}

// leftAlone says in words why there is no plan when the pod is left alone, which is an answer and no failure.
func leftAlone(command *cobra.Command, err error) error {
	if alone := (*notCapturedError)(nil); errors.As(err, &alone) {
		fmt.Fprintln(command.ErrOrStderr(), err)
		return errFindings
	}
	return err
}
