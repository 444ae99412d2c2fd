// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/repair"
)

// Repair is what to do about the node's pods that are not captured.
type Repair struct {
	Enabled bool
	// The modes that Istio's settings name, one each.
	InPlace, Delete, Evict, Label bool
	// ProcDir and NetnsDirs are the node's, as this container sees them; with them, pods' network
	// namespaces are looked at. Whether they are mounted is not checked here.
	ProcDir   string   // may be empty
	NetnsDirs []string // may be empty, never nil
	// Rules are tried before the modes.
	Rules             []repair.Rule
	BrokenPodLabel    repair.Label
	SidecarAnnotation string // may be empty
	Validator         repair.Validator
	LabelSelector     string
	FieldSelector     string
	Writes            repair.Limit
	Disruptions       repair.Limit
	Resync            time.Duration
	ActAtStart        bool
}

// outsideTheMesh are the settings for pods that are not captured.
func outsideTheMesh() []Setting {
	t := table{group: OutsideTheMesh}
	t.add("repair-enabled", "true", boolean(func(s *Settings) *bool { return &s.Repair.Enabled }),
		"look after the node's pods, where node-name is known: those that are not captured are reported, and dealt with as said below")
	t.add("repair-policy", "", repairRules(),
		"what is done about which pods, such as 'owners=Job do=delete; namespaces=shop,bank do=evict,label'; the first rule that fits decides, "+
			"and the next four settings are about the rest")
	t.add("repair-repair-pods", "false", boolean(func(s *Settings) *bool { return &s.Repair.InPlace }),
		"put the rules into pods that run, and where that can't be done, do as the next three say; needs what mounted-proc-dir names, "+
			"and capabilities; without them the rest is done, and the part repair says so")
	t.add("repair-evict-pods", "false", boolean(func(s *Settings) *bool { return &s.Repair.Evict }),
		"evict pods that are not captured, which respects disruption budgets")
	t.add("repair-delete-pods", "false", boolean(func(s *Settings) *bool { return &s.Repair.Delete }),
		"delete pods that are not captured; with repair-evict-pods, those that can't be evicted are reported")
	t.add("repair-label-pods", "false", boolean(func(s *Settings) *bool { return &s.Repair.Label }),
		"label pods that are not captured, where they are neither evicted nor deleted")
	t.add("mounted-proc-dir", "/host/proc", optionalPath(func(s *Settings) *string { return &s.Repair.ProcDir }),
		"the node's proc file system, if it is mounted here: with it, pods are compared with what the plugin recorded, "+
			"whatever their validators say; empty: pods' network namespaces are not looked at")
	t.add("mounted-netns-dirs", "/host/var/run/netns", paths(func(s *Settings) *[]string { return &s.Repair.NetnsDirs }),
		"where container runtimes keep network namespaces, if they are mounted here with mountPropagation HostToContainer, separated by commas")
	t.add("repair-broken-pod-label-key", repair.IstioLabel().Key, labelKey(func(s *Settings) *string { return &s.Repair.BrokenPodLabel.Key }),
		"the label's key")
	t.add("repair-broken-pod-label-value", repair.IstioLabel().Value,
		labelValue(func(s *Settings) *string { return &s.Repair.BrokenPodLabel.Value }), "the label's value")
	t.add("repair-sidecar-annotation", "sidecar.istio.io/status", text(func(s *Settings) *string { return &s.Repair.SidecarAnnotation }),
		"pods without this annotation are not looked after; empty: all pods with a proxy are")
	t.add("repair-init-container-name", repair.IstioValidator().Container,
		text(func(s *Settings) *string { return &s.Repair.Validator.Container }),
		"the init container that tells by its end whether the pod is captured; empty: any")
	t.add("repair-init-container-exit-code", "126", exitCode(),
		"the exit code by which it says that the pod is not captured; 0: any but 0")
	t.add("repair-init-container-termination-message", "", text(func(s *Settings) *string { return &s.Repair.Validator.Message }),
		"the termination message that it leaves besides; empty: any")
	t.add("repair-label-selectors", "", labelSelector(func(s *Settings) *string { return &s.Repair.LabelSelector }),
		"a label selector: other pods are not looked after")
	t.add("repair-field-selectors", "", fieldSelector(func(s *Settings) *string { return &s.Repair.FieldSelector }),
		"a field selector: other pods are not looked after")
	t.add("repair-act-at-start", "false", boolean(func(s *Settings) *bool { return &s.Repair.ActAtStart }),
		"deal at once with pods that were there when the process was started; false: a problem of theirs that no validator has reported is only "+
			"reported at first, and dealt with after repair-resync")
	t.add("repair-resync", "10m", span(func(s *Settings) *time.Duration { return &s.Repair.Resync }),
		"how often all pods are looked at anew")
	t.add("repair-writes", limitText(repair.DefaultLimits().Writes), limit(func(s *Settings) *repair.Limit { return &s.Repair.Writes }),
		"how many pods are labelled, evicted or deleted at once, and how long until there may be one more")
	t.add("repair-disruptions", limitText(repair.DefaultLimits().Disruptions),
		limit(func(s *Settings) *repair.Limit { return &s.Repair.Disruptions }),
		"the same of pods that are evicted or deleted, which count for repair-writes, too")
	return t.rows
}

// RepairConfig returns the node-watcher's configuration for repair; nil if repair is off.
func (s Settings) RepairConfig() (*repairconf.Config, error) {
	r := s.Repair
	if !r.Enabled {
		return nil, nil
	}
	plugin, err := s.PluginConfig()
	if err != nil {
		return nil, err
	}
	limits := repair.DefaultLimits()
	limits.Writes, limits.Disruptions = r.Writes, r.Disruptions
	config := &repairconf.Config{
		ExcludeNamespaces: plugin.ExcludeNamespaces, AgentNamespace: plugin.PodNamespace, AgentName: plugin.AgentName,
		SidecarAnnotation: r.SidecarAnnotation, Validator: r.Validator, LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector,
		Policy: repair.Policy{Rules: r.policy(), Label: r.BrokenPodLabel}, Limits: limits, Resync: r.Resync, ActAtStart: r.ActAtStart,
		Journal: filepath.Join(s.RunDir, "journal"), Results: filepath.Join(s.CacheDir, "results"),
	}
	if r.ProcDir != "" {
		// A pod without a record is given what the plugin would give it.
		config.InPlace = &repairconf.InPlace{Proc: r.ProcDir, Netns: r.NetnsDirs, Dataplane: plugin.Chosen()}
	}
	return config, nil
}

// policy returns the rules, followed by the rule for all other pods.
func (r Repair) policy() []repair.Rule {
	rest := repair.Rule{}
	if r.InPlace {
		rest.Do = append(rest.Do, repair.ModeRepair)
	}
	switch {
	case r.Evict:
		rest.Do = append(rest.Do, repair.ModeEvict)
	case r.Delete:
		rest.Do = append(rest.Do, repair.ModeDelete)
	}
	if r.Label {
		rest.Do = append(rest.Do, repair.ModeLabel)
	}
	if len(rest.Do) == 0 {
		return r.Rules
	}
	return append(r.Rules[:len(r.Rules):len(r.Rules)], rest)
}

// WantsInPlace reports whether pods are to be repaired while they run.
func (r Repair) WantsInPlace() bool {
	return r.Enabled && slices.ContainsFunc(r.policy(), func(rule repair.Rule) bool { return slices.Contains(rule.Do, repair.ModeRepair) })
}

func repairRules() parser {
	of := func(s *Settings) *[]repair.Rule { return &s.Repair.Rules }
	return parsed("rules", shape{Type: "string"}, of, repairconf.ParseRules)
}

func paths(of func(*Settings) *[]string) parser {
	return list("paths", shape{Type: "string", Pattern: "^/"}, of, atCommas, func(path string) (string, error) {
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("%q is not an absolute path", path)
		}
		return filepath.Clean(path), nil
	})
}

func exitCode() parser {
	bounds := shape{Type: "integer", Minimum: new(0), Maximum: new(255)}
	of := func(s *Settings) *[]int32 { return &s.Repair.Validator.ExitCodes }
	return parsed("number", bounds, of, func(value string) ([]int32, error) {
		code, err := strconv.ParseUint(value, 10, 8)
		switch {
		case err != nil:
			return nil, errors.New("write a number from 0 to 255")
		case code == 0:
			return nil, nil
		}
		return []int32{int32(code)}, nil
	})
}

func limit(of func(*Settings) *repair.Limit) parser {
	return parsed("limit", shape{Type: "string", Pattern: "^[0-9]+/" + times + "+$"}, of, repairconf.ParseLimit)
}

func limitText(l repair.Limit) string { return fmt.Sprintf("%d/%s", l.Burst, l.Every) }
