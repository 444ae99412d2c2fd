// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"strconv"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// other stands for a value that is not known here: it comes from another version of the plugin, or
// from a program that is not the plugin.
const other = "other"

// Result counts the result of a plugin's command.
func (m *Metrics) Result(r podsource.Result) {
	command := known(r.Command, "ADD", "DEL", "CHECK", "GC", "STATUS")
	if r.Reason != "" {
		m.decisions.WithLabelValues(strconv.FormatBool(r.Captured), known(string(r.Reason), reasons()...)).Inc()
	}
	if r.Error != nil {
		m.failures.WithLabelValues(command, code(r.Error.Code)).Inc()
	}
	source := "none"
	if r.Source != "" {
		source = known(r.Source, "agent", "api-server", "annotations")
	}
	total := 0.0
	for _, stage := range r.Stages {
		total += stage.Milliseconds
		m.observe(command, known(stage.Name, "source", "plan", "apply", "record"), source, stage.Milliseconds)
	}
	if len(r.Stages) > 0 {
		m.observe(command, "total", source, total)
	}
}

func (m *Metrics) observe(command, stage, source string, milliseconds float64) {
	m.stageSeconds.WithLabelValues(command, stage, source).Observe(milliseconds * time.Millisecond.Seconds())
}

func known(text string, all ...string) string {
	if slices.Contains(all, text) {
		return text
	}
	return other
}

// ambientReasons returns those of package ambientplugin.
func ambientReasons() []string { return []string{"ambient", "ambient-proxy"} }

// letPass returns the plugin's own reasons to let a pod in the mesh run uncaptured.
func letPass() []string { return []string{"uninstalled", "fail-open"} }

// reasons returns those of decisions, and the plugin's own.
func reasons() []string {
	return slices.Concat([]string{
		string(sidecar.ReasonOwnAgent), string(sidecar.ReasonNotKubernetes), string(sidecar.ReasonExcludedNamespace),
		string(sidecar.ReasonHostNetwork), string(sidecar.ReasonNoMesh), string(sidecar.ReasonRuleContainer),
		string(sidecar.ReasonNoProxy), string(sidecar.ReasonProxyDisabled), string(sidecar.ReasonProxyType),
		string(sidecar.ReasonOptedOut), string(sidecar.ReasonNotInjected), string(sidecar.ReasonInMesh),
	}, ambientReasons(), letPass())
}

// code returns the label for the code of a CNI error. The specification reserves codes below 100;
// the plugin's own are below 200, and those of ambient mode below 300.
func code(code uint) string {
	if code < 300 {
		return strconv.FormatUint(uint64(code), 10)
	}
	return other
}
