// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/examples/internal/manifest"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// maxSource is the most that is read of a file: a plan with 10,000 networks has less than half of it.
const maxSource = 4 << 20

// source says how what the command line names becomes rules.
type source struct {
	ipv4Only, spare, anyway bool
	owner, pod              string
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
	flags.StringVar(&s.pod, "pod", "", `the one pod or workload of a manifest to look at: "cart", "shop/cart" or "Deployment shop/cart"`)
	s.dataplane.add(command, "dataplane", "", "where the rules of a live namespace are: nftables, iptables, or auto for where there are any")
	return s
}

// rules are those of one pod, plan or live namespace.
type rules struct {
	// name is that of a pod or a workload, such as "Pod shop/cart-0"; empty for others.
	name string
	// state is what there is; of a pod and a plan, what would be there.
	state interception.State
	// addresses are those of the pod; nil where they are not known.
	addresses []netip.Prefix
	// alone says why the pod has no rules; nil where it has.
	alone *notCapturedError
}

// notCapturedError means that the pod has no plan.
type notCapturedError struct {
	decision interception.Decision
	template bool
}

func (e *notCapturedError) Error() string {
	text := fmt.Sprintf("the pod is left alone: %s; to plan it all the same, add --anyway", e.decision)
	if e.template {
		text += "; a template usually gets its proxy from the injector, when a pod is made of it"
	}
	return text
}

// read returns what the argument names, once for each pod: the rules that a pod would get, those of a plan, or those that a live
// namespace holds. Warnings go to the command's standard error.
func (s *source) read(command *cobra.Command, argument string) ([]rules, error) {
	return s.readAs(command, argument, "")
}

// readAs is read with a prefix for all warnings.
func (s *source) readAs(command *cobra.Command, argument, prefix string) ([]rules, error) {
	if ns, live, err := openLive(argument); live {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", argument, err)
		}
		found, err := s.readLive(command, ns)
		return []rules{found}, errors.Join(err, ns.Close())
	}
	text, err := readText(command, argument)
	if err != nil {
		return nil, err
	}
	all, err := s.parse(command, text, prefix)
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

// readOne returns what the argument, one of two, names: one pod, plan or namespace. Warnings name the argument.
func (s *source) readOne(command *cobra.Command, argument string) (rules, error) {
	all, err := s.readAs(command, argument, argument+": ")
	if err != nil {
		return rules{}, err
	}
	if len(all) > 1 {
		return rules{}, fmt.Errorf("%s: it has several pods: choose one with --pod: %s", argument, names(all))
	}
	if all[0].alone != nil {
		return rules{}, fmt.Errorf("%s: %w", argument, all[0].alone)
	}
	return all[0], nil
}

// readBoth reads two sources.
func (s *source) readBoth(command *cobra.Command, arguments []string) (a, b rules, err error) {
	if arguments[0] == "-" && arguments[1] == "-" {
		return a, b, usage(command, errors.New("the standard input can be read once only"))
	}
	if a, err = s.readOne(command, arguments[0]); err != nil {
		return a, b, err
	}
	b, err = s.readOne(command, arguments[1])
	return a, b, err
}

func names(all []rules) string {
	var texts []string
	for _, r := range all {
		texts = append(texts, strconv.Quote(r.name))
	}
	return strings.Join(texts, ", ")
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

// parse makes plans of a text: of the pods of a manifest, or of one plan, which has no kind but an owner.
func (s *source) parse(command *cobra.Command, text []byte, prefix string) ([]rules, error) {
	read, err := manifest.Read(text)
	if err != nil {
		return nil, err
	}
	if len(read.Untyped) > 0 {
		return s.parsePlan(read)
	}
	for _, other := range read.Others {
		fmt.Fprintf(command.ErrOrStderr(), "note: %s is passed over: it makes no pods\n", other)
	}
	pods, err := s.chosen(read.Pods)
	if err != nil {
		return nil, err
	}
	var all []rules
	for _, pod := range pods {
		about := prefix
		if len(pods) > 1 {
			about += pod.Name + ": "
		}
		r, err := s.rulesOf(command, pod, about)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pod.Name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// parsePlan reads the plan that is the only document of a text.
func (s *source) parsePlan(read manifest.Manifest) ([]rules, error) {
	document := read.Untyped[0]
	var form struct{ Owner string }
	if err := json.Unmarshal(document.JSON, &form); err != nil || form.Owner == "" {
		return nil, fmt.Errorf(`line %d: neither a Kubernetes object (it has no "kind") nor a plan (it has no "owner")`, document.Line)
	}
	if len(read.Untyped)+len(read.Pods)+len(read.Others) > 1 {
		return nil, errors.New("a plan is there, and other documents beside it: give it alone")
	}
	plan := &interception.Plan{}
	if err := json.Unmarshal(document.JSON, plan); err != nil {
		return nil, err
	}
	return []rules{{state: interception.State{Owner: plan.Owner, Objects: plan.Objects}}}, nil
}

// chosen are the pods that the command line names.
func (s *source) chosen(pods []manifest.Pod) ([]manifest.Pod, error) {
	if s.pod == "" {
		return pods, nil
	}
	var chosen []manifest.Pod
	var all []rules
	for _, pod := range pods {
		all = append(all, rules{name: pod.Name})
		_, full, _ := strings.Cut(pod.Name, " ")
		_, name, _ := strings.Cut(full, "/")
		if slices.Contains([]string{pod.Name, full, name}, s.pod) {
			chosen = append(chosen, pod)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("there is no pod %q: --pod takes one of %s", s.pod, names(all))
	}
	return chosen, nil
}

// rulesOf plans for a pod of a manifest. The prefix says in warnings what they are about.
func (s *source) rulesOf(command *cobra.Command, pod manifest.Pod, prefix string) (rules, error) {
	r := rules{name: pod.Name}
	for _, address := range pod.Addresses {
		r.addresses = append(r.addresses, netip.PrefixFrom(address, address.BitLen()))
	}
	view, err := podsource.ParsePod(pod.Object)
	if err != nil {
		return rules{}, err
	}
	plan, err := s.plan(view, func(w interception.Warning) { fmt.Fprintf(command.ErrOrStderr(), "warning: %s%v\n", prefix, w) })
	if errors.As(err, &r.alone) {
		r.alone.template = pod.Template
		return r, nil
	} else if err != nil {
		return rules{}, err
	}
	r.state = interception.State{Owner: plan.Owner, Objects: plan.Objects}
	return r, nil
}

// plan does what the plugin does.
func (s *source) plan(pod interception.Pod, warn func(interception.Warning)) (*interception.Plan, error) {
	dialect := interception.Istio()
	decision := interception.Decide(pod, interception.Policy{Membership: dialect.Membership})
	if !decision.Capture && !s.anyway {
		return nil, &notCapturedError{decision: decision}
	}
	redirect, warnings, err := dialect.Parse(pod)
	if err != nil {
		return nil, err
	}
	for _, warning := range warnings {
		warn(warning)
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
