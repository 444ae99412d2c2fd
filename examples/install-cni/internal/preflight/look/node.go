// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// Options are where to look.
type Options struct {
	// NetDir is the node's directory of CNI configurations, as this process sees it.
	NetDir string
	// Proc is where the host's proc file system is mounted; /proc if empty.
	Proc string
	// Settings are those of ambient mode.
	Settings ambientconf.Config
	// Candidates are the dataplanes to try; nil stands for those of [standard.Candidates].
	Candidates []choice.Candidate
}

// maxConfig bounds a CNI configuration, in bytes.
const maxConfig = 1 << 20

// Node looks at a node.
func Node(ctx context.Context, o Options) preflight.View {
	var v preflight.View
	for what, look := range map[string]func() error{
		"the CNI configurations": func() error { return configs(&v, o.NetDir) },
		"the host's network":     func() error { return network(ctx, &v, o) },
		"the kernel's abilities": func() error { return kernel(ctx, &v, o) },
	} {
		if err := look(); err != nil {
			v.Unknown = append(v.Unknown, fmt.Sprintf("%s: %v", what, err))
		}
	}
	slices.Sort(v.Unknown)
	return v
}

// configs reads the files of the CNI directory, whatever their names: programs rename those of
// others.
func configs(v *preflight.View, directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		text, err := filesystem.ReadThroughLinks(filepath.Join(directory, entry.Name()), maxConfig)
		v.Configs = append(v.Configs, preflight.Config{Name: entry.Name(), Text: text})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// plans returns those whose rules the kernel has to take.
func (o Options) plans() (all []*interception.Plan, err error) {
	if o.Settings.OnNode() {
		return preflight.ExamplePlans(ambientconf.NodeNumbers(), o.Settings.ProxyWay())
	}
	plan, err := o.Settings.WholePlan()
	return []*interception.Plan{plan}, err
}

// kernel tries the rules of pods and of the host.
func kernel(ctx context.Context, v *preflight.View, o Options) error {
	plans, err := o.plans()
	if err != nil {
		return err
	}
	if o.Settings.OnNode() && o.Settings.ProxyWay() == ambient.WayVXLAN {
		if err := tunnels(v); err != nil {
			return err
		}
	}
	candidates := o.Candidates
	if candidates == nil {
		if candidates, err = standard.Candidates(nftables.Options{}, iptables.Options{}); err != nil {
			return err
		}
	}
	if name := o.Settings.Dataplane; name != "" { // no other one is used
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(c choice.Candidate) bool { return c.Name != name })
	}
	for _, plan := range plans {
		if err := try(ctx, v, plan, candidates); err != nil {
			return err
		}
	}
	return nil
}

// try notes whether iptables applies a plan, or what each candidate lacks if none can apply it.
func try(ctx context.Context, v *preflight.View, plan *interception.Plan, candidates []choice.Candidate) error {
	chosen, err := choice.Choose(ctx, plan, choice.Options{}, candidates...)
	v.ByIPTables = v.ByIPTables || err == nil && chosen.Name == choice.IPTables
	lacks, is := errors.AsType[*choice.Error](err)
	if !is {
		return err
	}
	for _, rejection := range lacks.Rejections {
		for _, missing := range rejection.Missing {
			v.Missing = append(v.Missing, fmt.Sprintf("%s: %v", rejection.Name, missing))
		}
	}
	return nil
}

// tunnels tries the links of the way to the proxy.
func tunnels(v *preflight.View) (err error) {
	scratch, err := choice.NewScratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	missing, err := missingTunnels(scratch)
	if missing != "" {
		v.Missing = append(v.Missing, missing)
	}
	return err
}

// network looks at the host's links and policy rules, and for the capture on the node at what other
// programs have of its numbers.
func network(ctx context.Context, v *preflight.View, o Options) (err error) {
	host, err := interception.HostNetns(interception.NetnsOptions{ProcRoot: o.Proc})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	if err := within(host, v); err != nil || !o.Settings.OnNode() {
		return err
	}
	v.Standing, err = standing(ctx, host)
	return err
}
