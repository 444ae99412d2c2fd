// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// Choice is how the plugin writes rules.
type Choice struct {
	// Setting is the plugin's setting dataplane, one of [pluginconf.Dataplanes].
	Setting string
	// IPTables reports that this needs the plugin's build with iptables.
	IPTables bool
}

// Options configure a [Chooser]. The zero value is right except in tests and for the log.
type Options struct {
	// Mesh makes the plans that are tried. Its pods use Istio's annotations.
	Mesh sidecar.Mesh
	// Log receives the reason of each choice; nil for no log.
	Log *slog.Logger
	// Candidates are the dataplanes to choose from, the preferred first; nil stands for those of
	// [standard.Candidates].
	Candidates []choice.Candidate
	// Scratch creates the namespaces for trials; nil stands for [choice.NewScratch].
	Scratch func() (*interception.Netns, error)
	// Proc is where the node's /proc is mounted. The chooser looks for the node's nsenter below it.
	// If it cannot, because Proc is empty or the process lacks CAP_SYS_PTRACE, it logs a hint
	// instead.
	Proc string
}

// Chooser chooses a dataplane. It tries the kernel until it has learned what it needs, usually at
// the first call, and is safe for concurrent use. Create it with [New].
type Chooser struct {
	options Options
	lock    sync.Mutex
	answers map[string]Choice // by setting; facts alone
	unclear map[string]string // the last reason why there is no answer, by setting; it is logged once
}

// New returns a chooser.
func New(o Options) *Chooser {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Chooser{options: o, answers: map[string]Choice{}, unclear: map[string]string{}}
}

// Choose returns how the plugin is to write rules under a setting, one of [pluginconf.Dataplanes].
// It logs what cannot be learned, or is missing; the choice is then the least surprising one: the
// setting, with the build that it needs. A trial that failed for another reason than the kernel,
// such as its deadline on a busy node, says nothing: the choice is then the setting with the build
// that may be needed, and the next call tries again.
func (c *Chooser) Choose(ctx context.Context, setting string) Choice {
	c.lock.Lock()
	defer c.lock.Unlock()
	answer, known := c.answers[setting]
	if known {
		return answer
	}
	_, again := c.unclear[setting]
	if answer, known = c.choose(ctx, setting); known && ctx.Err() == nil {
		c.answers[setting] = answer
	}
	if answer.IPTables && !again {
		c.lookForNsenter()
	}
	return answer
}

// choose returns the choice, and whether it follows from facts.
func (c *Chooser) choose(ctx context.Context, setting string) (answer Choice, known bool) {
	candidates, err := c.candidates(setting)
	var all, usual *interception.Plan
	if err == nil {
		all, usual, err = c.plans()
	}
	if err != nil {
		return c.undecided(ctx, setting, err), false
	}
	best, missing := choice.Choose(ctx, all, choice.Options{Scratch: c.options.Scratch}, candidates...)
	switch {
	case missing == nil && best.Name == candidates[0].Name:
		return c.chose(best), true
	case missing != nil && !isVerdict(missing):
		return c.undecided(ctx, setting, missing), false
	}
	most, err := choice.Choose(ctx, usual, choice.Options{Scratch: c.options.Scratch}, candidates...)
	if err != nil && !isVerdict(err) {
		return c.undecided(ctx, setting, err), false
	}
	return c.weigh(ctx, setting, trials{best, most, missing, err}), true
}

// isVerdict reports whether an error is about what the kernel or the programs lack.
func isVerdict(err error) bool {
	_, is := errors.AsType[*choice.Error](err)
	return is
}

// trials are the results for the plan with every setting, and for the usual one.
type trials struct {
	best, most   choice.Choice
	missing, err error
}

// weigh returns the choice that follows from trials of which the first is not the obvious one.
func (c *Chooser) weigh(ctx context.Context, setting string, t trials) Choice {
	switch {
	case errors.Is(t.err, exec.ErrNotFound): // in this image; the plugin uses the node's
		c.notKnown(ctx, setting, t.err)
		return Choice{setting, true}
	case t.err != nil:
		c.options.Log.Error("this node cannot capture pods: they are refused", "dataplane", setting, "reason", oneLine(t.err))
		return Choice{setting, setting == pluginconf.IPTables}
	case errors.Is(t.missing, exec.ErrNotFound):
		c.options.Log.Info("chose how the plugin writes rules: for most pods as the first, for others as the second, if the node has it",
			"dataplane", t.most.Name+", "+pluginconf.IPTables, "reason", oneLine(t.missing), "hint", onNode)
		return Choice{pluginconf.Auto, true}
	case t.missing != nil:
		c.options.Log.Warn("chose how the plugin writes rules; pods that ask for what is missing are refused",
			"dataplane", t.most.Name, "reason", oneLine(t.missing))
		return Choice{t.most.Name, t.most.Name == pluginconf.IPTables}
	case t.most.Name != t.best.Name:
		c.options.Log.Info("chose how the plugin writes rules: for most pods as the first, for those that need more as the second",
			"dataplane", t.most.Name+", "+t.best.Name, "reason", t.best.String())
		return Choice{pluginconf.Auto, true}
	default:
		return c.chose(t.best)
	}
}

// chose logs and returns the choice of one dataplane.
func (c *Chooser) chose(one choice.Choice) Choice {
	c.options.Log.Info("chose how the plugin writes rules", "dataplane", one.Name, "reason", one.String())
	return Choice{one.Name, one.Name == pluginconf.IPTables}
}

// undecided returns the choice where a trial has shown nothing about the kernel. The daemon may
// have been started again on a node that needs the build with iptables, which has both dataplanes:
// so it is that one, except where the daemon is not given the rights for trials.
func (c *Chooser) undecided(ctx context.Context, setting string, err error) Choice {
	if why := err.Error(); c.unclear[setting] != why {
		c.unclear[setting] = why
		c.notKnown(ctx, setting, err)
	}
	mayNeed := setting == pluginconf.Auto && !errors.Is(err, fs.ErrPermission)
	return Choice{setting, setting == pluginconf.IPTables || mayNeed}
}

// onNode is what the plugin needs on the node to write rules with iptables.
const onNode = "the plugin runs the node's programs, and needs the packages iptables and, for pods with hostUsers: false, util-linux"

// notKnown logs why nothing was learned.
func (c *Chooser) notKnown(ctx context.Context, setting string, err error) {
	notFound, level := errors.Is(err, exec.ErrNotFound), slog.LevelWarn
	if errors.Is(err, fs.ErrPermission) || notFound && setting == pluginconf.IPTables {
		// As usual: the daemon lacks the right to try, or its image the programs.
		level = slog.LevelInfo
	}
	log := c.options.Log.With("dataplane", setting, "error", oneLine(err))
	if notFound || setting == pluginconf.IPTables {
		log = log.With("hint", onNode)
	}
	log.Log(ctx, level, "what the kernel supports is unknown until the first pod starts, or a later trial shows it")
}

// candidates returns those that a setting allows.
func (c *Chooser) candidates(setting string) ([]choice.Candidate, error) {
	candidates := c.options.Candidates
	if candidates == nil {
		var err error
		if candidates, err = standard.Candidates(nftables.Options{}, iptables.Options{}); err != nil {
			return nil, err
		}
	}
	var allowed []choice.Candidate
	for _, candidate := range candidates {
		if setting == pluginconf.Auto || setting == candidate.Name {
			allowed = append(allowed, candidate)
		}
	}
	return allowed, nil
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// lookForNsenter warns if the node has no nsenter, which the plugin needs to write iptables rules
// for pods with a user namespace of their own.
func (c *Chooser) lookForNsenter() {
	const hint = "install package util-linux on the node, or set dataplane to nftables"
	found, err := hasNsenter(c.options.Proc)
	switch {
	case err != nil:
		c.options.Log.Info("whether the node has nsenter is not known: pods with users of their own (hostUsers: false) may need it",
			"error", err.Error(), "hint", hint)
	case !found:
		c.options.Log.Warn("pods with users of their own (hostUsers: false) are refused where iptables write the rules: the node has no nsenter",
			"hint", hint)
	}
}

// hasNsenter looks where the plugin finds the node's programs, from the root directory of the
// node's first process. A symbolic link counts, wherever it leads.
func hasNsenter(proc string) (bool, error) {
	if proc == "" {
		return false, errors.New("mounted-proc-dir is empty")
	}
	root, err := os.OpenRoot(filepath.Join(proc, "1/root"))
	if err != nil {
		return false, fmt.Errorf("open the node's root directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	var unclear error  // for example a directory that is a link with an absolute target
	for _, directory := range []string{"usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"} {
		_, err := root.Lstat(directory + "/nsenter")
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			unclear = fmt.Errorf("look for the node's nsenter: %w", err)
		}
	}
	return false, unclear
}

// plans returns the plan of a pod that uses every setting, and that of a usual pod; also for IPv6,
// if the kernel has it.
func (c *Chooser) plans() (all, usual *interception.Plan, err error) {
	scratch := c.options.Scratch
	if scratch == nil {
		scratch = choice.NewScratch
	}
	ns, err := scratch()
	if err != nil {
		return nil, nil, fmt.Errorf("make a network namespace for a trial: %w", err)
	}
	defer ns.Close() //nolint:errcheck // nothing is written through it
	facts, err := netfacts.Read(ns)
	if err != nil {
		return nil, nil, err
	}
	demands, err := c.options.Mesh.Plan(demanding(), facts)
	if err != nil {
		return nil, nil, err
	}
	plain, err := c.options.Mesh.Plan(interception.Pod{Containers: []interception.Container{{Name: "istio-proxy"}}}, facts)
	return demands.Plan, plain.Plan, err
}

// demanding returns a pod with every setting.
func demanding() interception.Pod {
	var prefixes []string
	for i := range 16 { // enough to become a set
		prefixes = append(prefixes, fmt.Sprintf("192.0.2.%d/32,2001:db8::%d/128", 2*i, 2*i))
	}
	return interception.Pod{
		Annotations: map[string]string{
			"sidecar.istio.io/interceptionMode":                "TPROXY",
			"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8,fd00::/8",
			"traffic.sidecar.istio.io/excludeOutboundIPRanges": strings.Join(prefixes, ","),
			"traffic.sidecar.istio.io/includeOutboundPorts":    "8080,9090",
			"traffic.sidecar.istio.io/excludeOutboundPorts":    "3306,5432",
			"traffic.sidecar.istio.io/includeInboundPorts":     "*",
			"traffic.sidecar.istio.io/excludeInboundPorts":     "22,15020",
			"traffic.sidecar.istio.io/excludeInterfaces":       "net1",
			"istio.io/reroute-virtual-interfaces":              "tap0",
		},
		Containers: []interception.Container{{Name: "istio-proxy", Env: map[string]string{
			"ISTIO_META_DNS_CAPTURE": "true", "INVALID_DROP": "true",
			"ISTIO_OUTBOUND_OWNER_GROUPS": "100,200", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "300",
		}}},
	}
}
