// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/examples/internal/manifest"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// parse makes plans from a text: from the pods of a manifest, or from one plan, which has an owner
// but no kind.
func (s *source) parse(command *cobra.Command, text []byte, prefix string, selected selection) ([]rules, error) {
	read, err := manifest.Read(text)
	if err != nil {
		return nil, err
	}
	if len(read.Untyped) > 0 {
		if err := selected.ofNone("a plan"); err != nil {
			return nil, err
		}
		return s.parsePlan(read)
	}
	for _, other := range read.Others {
		fmt.Fprintf(command.ErrOrStderr(), "note: skipped %s, which makes no pods\n", other)
	}
	pods, err := selected.of(read.Pods)
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
		switch r.several = len(pods) > 1; {
		case err != nil && r.several:
			r.err = err // hides no other pod
		case err != nil:
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
		return nil, errors.New("there is a plan among other documents: give it alone")
	}
	plan := &interception.Plan{}
	if err := json.Unmarshal(document.JSON, plan); err != nil {
		return nil, err
	}
	return []rules{{state: interception.State{Owner: plan.Owner, Objects: plan.Objects}}}, nil
}

// rulesOf plans for a pod of a manifest as the plugin does. Warnings begin with the prefix.
func (s *source) rulesOf(command *cobra.Command, pod manifest.Pod, prefix string) (rules, error) {
	r := rules{name: pod.Name}
	for _, address := range pod.Addresses {
		r.addresses = append(r.addresses, netip.PrefixFrom(address, address.BitLen()))
	}
	view, err := podsource.ParsePod(pod.Object)
	if err != nil {
		return r, err
	}
	mesh := istiomesh.Mesh()
	mesh.Owner = interception.Owner(s.owner)
	if decision := mesh.Decide(view); !decision.Capture && !s.anyway {
		r.alone = &notCaptured{decision, pod.Template}
		return r, nil
	}
	planned, err := mesh.Plan(view, interception.Facts{IPv6: !s.ipv4Only})
	for _, warning := range planned.Warnings {
		fmt.Fprintf(command.ErrOrStderr(), "warning: %s%v\n", prefix, warning)
	}
	if err != nil {
		return r, err
	}
	plan := planned.Plan
	if s.spare {
		plan = plan.Sparing()
	}
	r.state = interception.State{Owner: plan.Owner, Objects: plan.Objects}
	return r, nil
}

// selection chooses pods of a source: all, if it has no names.
type selection struct {
	names []string
	// lenient accepts a source with one pod or none, whatever the names.
	lenient bool
}

// of returns the chosen pods, in the manifest's order.
func (s selection) of(pods []manifest.Pod) ([]manifest.Pod, error) {
	if len(s.names) == 0 || s.lenient && len(pods) == 1 {
		return pods, nil
	}
	for _, name := range s.names {
		if !slices.ContainsFunc(pods, func(p manifest.Pod) bool { return isNamed(p.Name, name) }) {
			var all []string
			for _, pod := range pods {
				all = append(all, strconv.Quote(pod.Name))
			}
			return nil, fmt.Errorf("there is no pod %q: --pod takes one of %s", name, strings.Join(all, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p manifest.Pod) bool {
		return !slices.ContainsFunc(s.names, func(name string) bool { return isNamed(p.Name, name) })
	}), nil
}

// ofNone refuses names for a source without pods.
func (s selection) ofNone(kind string) error {
	if len(s.names) == 0 || s.lenient {
		return nil
	}
	return fmt.Errorf("it is %s, which has no pod %q: leave --pod out", kind, s.names[0])
}

// isNamed reports whether a name on the command line means the pod with this full name: "Pod
// shop/cart" matches itself, "shop/cart" and "cart".
func isNamed(full, name string) bool {
	_, inNamespace, _ := strings.Cut(full, " ")
	_, short, _ := strings.Cut(inNamespace, "/")
	return full != "" && slices.Contains([]string{full, inNamespace, short}, name)
}
