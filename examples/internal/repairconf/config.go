// SPDX-License-Identifier: Apache-2.0

package repairconf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/repair"
)

// Config is what to do about the node's pods that are not captured.
type Config struct {
	// ExcludeNamespaces, AgentNamespace and AgentName are those of the plugin.
	ExcludeNamespaces         []string
	AgentNamespace, AgentName string
	// SidecarAnnotation is the annotation that the injector leaves; if it is empty, pods count
	// without one.
	SidecarAnnotation string
	// Validator is the mesh's.
	Validator repair.Validator
	// LabelSelector and FieldSelector narrow the node's pods.
	LabelSelector, FieldSelector string
	// Policy, Limits, Resync and ActAtStart are those of the controller.
	Policy     repair.Policy
	Limits     repair.Limits
	Resync     time.Duration
	ActAtStart bool
	// Journal and Results are the directories of the plugin's records and of libcni's cache, as the
	// node-watcher sees them.
	Journal, Results string
	// InPlace enables looking at the pods' network namespaces, and repairing them under the policy;
	// if it is nil, only the records are read.
	InPlace *InPlace
}

// InPlace has the paths of the node's files, as the node-watcher sees them: those of
// podnetns.Roots.
type InPlace struct {
	Proc  string
	Netns []string
	// Dataplane is the plugin's, one of pluginconf.Dataplanes or empty: pods without a record are
	// repaired with the same one.
	Dataplane string
}

// Criteria returns the controller's criteria.
func (c Config) Criteria(node, planner string) repair.Criteria {
	return repair.Criteria{
		Mesh: c.Mesh(), Node: node, Validators: []repair.Validator{c.Validator}, Planner: planner,
	}
}

// Mesh returns the plugin's mesh.
func (c Config) Mesh() sidecar.Mesh {
	mesh := istiomesh.Mesh()
	mesh.Dialect.Membership.InjectedAnnotation = c.SidecarAnnotation
	mesh.Policy = sidecar.Policy{ExcludeNamespaces: c.ExcludeNamespaces, AgentNamespace: c.AgentNamespace, AgentName: c.AgentName}
	return mesh
}

// ParseRules parses rules as an operator writes them: separated by semicolons, each of words like
//
//	namespaces=shop,bank owners=Job do=repair,delete
//
// with namespaces, owners (the kinds of the pods' controllers, "none" for pods without one),
// verdicts, do (in order of preference) and the word lose-unowned. All other words are errors.
func ParseRules(text string) ([]repair.Rule, error) {
	var rules []repair.Rule
	for part := range strings.SplitSeq(text, ";") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		var rule repair.Rule
		for _, word := range words {
			if err := addWord(&rule, word); err != nil {
				return nil, fmt.Errorf("rule %q: %w", strings.TrimSpace(part), err)
			}
		}
		rules = append(rules, rule)
	}
	// The real label is another setting.
	return rules, repair.Policy{Rules: rules, Label: repair.IstioLabel()}.Validate()
}

func addWord(rule *repair.Rule, word string) error {
	key, list, _ := strings.Cut(word, "=")
	values := strings.Split(list, ",")
	switch key {
	case "namespaces":
		rule.Namespaces = values
	case "owners":
		for i, kind := range values {
			if kind == "none" {
				values[i] = repair.NoOwner
			}
		}
		rule.OwnerKinds = values
	case "verdicts":
		rule.Verdicts = converted[repair.Verdict](values)
	case "do":
		rule.Do = converted[repair.Mode](values)
	case "lose-unowned":
		rule.LoseUnowned = true
		if list != "" {
			return errors.New("lose-unowned takes no value")
		}
		return nil
	default:
		return fmt.Errorf("%q is not a word of a rule: write namespaces=, owners=, verdicts=, do= or lose-unowned", word)
	}
	if slices.Contains(strings.Split(list, ","), "") {
		return fmt.Errorf("%q has an empty value", word)
	}
	return nil
}

func converted[T ~string](texts []string) []T {
	all := make([]T, len(texts))
	for i, text := range texts {
		all[i] = T(text)
	}
	return all
}

// ParseLimit parses a limit of the form BURST/TIME: "10/10s" is ten at once, and one more every ten
// seconds; "0/0s" allows nothing.
func ParseLimit(text string) (repair.Limit, error) {
	burst, every, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(burst)
	var l repair.Limit
	if err == nil {
		l.Burst = n
		l.Every, err = time.ParseDuration(every)
	}
	if err != nil {
		return repair.Limit{}, errors.New("write how many at once, and how long until there may be one more, such as 10/10s")
	}
	return l, l.Validate()
}

// Status is the state of repair, in numbers.
type Status struct {
	// Scanned reports that all pods of the start were looked at.
	Scanned bool `json:"scanned"`
	// Pods is the number of pods with each verdict.
	Pods map[repair.Verdict]int `json:"pods,omitempty"`
	// Done is how often each mode had each result, since the process was started.
	Done []Count `json:"done,omitempty"`
	// Waiting is the number of pods that wait for a limit, Unseen that of pods that could not be
	// looked at.
	Waiting int `json:"waiting,omitempty"`
	Unseen  int `json:"unseen,omitempty"`
	// EventsFailed is how often an event could not be put on a pod.
	EventsFailed int `json:"untold,omitempty"`
	// Forbidden has the API server's first refusal for each mode, or [Telling], that the role has
	// no verb for.
	Forbidden map[string]string `json:"forbidden,omitempty"`
}

// Telling is the key in Forbidden for events on pods.
const Telling = "event"

// Count is how often a mode had a result.
type Count struct {
	Mode   repair.Mode `json:"mode"`
	Result string      `json:"result"`
	Times  int         `json:"times"`
}

// Line is a line with a status.
type Line struct {
	Repair *Status `json:"repair"`
}
