// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Source is where a value comes from.
type Source struct {
	// Kind is "flag", "file", "environment", "default", or for a value that another process was asked
	// for, "daemon".
	Kind string `json:"kind"`
	// Name is the flag, the file's path, or the variable; empty for a default.
	Name string `json:"name,omitempty"`
}

// Given reports whether the value was set, and is not the default.
func (s Source) Given() bool { return s.Kind != kindDefault }

// String returns text such as "flag --cni-conf-name" or "default".
func (s Source) String() string {
	switch s.Kind {
	case kindDefault:
		return kindDefault
	case kindDaemon:
		return "the running daemon"
	case kindFlag:
		return "flag --" + s.Name
	default:
		return s.Kind + " " + s.Name
	}
}

// The kinds of sources.
const (
	kindDefault     = "default"
	kindFlag        = "flag"
	kindFile        = "file"
	kindEnvironment = "environment"
	kindDaemon      = "daemon"
)

// Value is the value of a setting.
type Value struct {
	Setting Setting
	// Text is the value in effect, as it was written.
	Text   string
	Source Source
	// Err is the error in Text. It is nil in a [Loaded] without error.
	Err error
	// Offer is a newer value that is not in effect. It is usually nil.
	Offer *Offer
}

// Offer is a value that arrived while the daemon runs, and is not in effect.
type Offer struct {
	Text   string
	Source Source
	// Err is the error in Text. It is nil for a good value of a setting that takes effect at the
	// next start.
	Err error
}

// environment is the process's environment, for look-ups.
type environment map[string]string

func newEnvironment(environ []string) environment {
	e := environment{}
	for _, variable := range environ {
		if name, value, ok := strings.Cut(variable, "="); ok {
			e[name] = value
		}
	}
	return e
}

// value looks up a setting by each of its names.
func (e environment) value(s Setting) (value string, source Source, found bool) {
	for _, name := range s.Envs() {
		if value, ok := e[name]; ok {
			return value, Source{kindEnvironment, name}, true
		}
	}
	return "", Source{}, false
}

// families returns prefixes of names that are settings in Istio's manifests and here.
func families() []string {
	return []string{"AMBIENT_", "CNI_", "HOST_PROBE_", "ISTIO_OWNED_", "KUBECFG_", "KUBECONFIG_", "MOUNTED_CNI_", "PLUGIN_", "REPAIR_"}
}

// strangers returns variables that look like a setting but are not, each with the setting that may
// be meant.
func (e environment) strangers() []string {
	known := slices.Clone(unread())
	for _, s := range All() {
		known = append(known, s.Envs()...)
	}
	var found []string
	for name := range e {
		if slices.Contains(known, name) || serviceLink(name) {
			continue
		}
		meant := nearest(name, known)
		family := slices.ContainsFunc(families(), func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		switch {
		case meant != "":
			found = append(found, name+" (did you mean "+meant+"?)")
		case family:
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// serviceLink reports whether the kubelet set a variable for a Service: its name starts with the
// Service's, such as CNI_X_SERVICE_HOST.
func serviceLink(name string) bool {
	for _, part := range []string{"_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return strings.HasSuffix(name, "_PORT")
}

// nearest returns the known name that differs from a long name by a slip of one or two letters.
func nearest(name string, known []string) string {
	const long = 10
	best, distance := "", 3
	for _, candidate := range known {
		if len(name) < long || len(candidate) < long {
			continue
		}
		if d := levenshtein.ComputeDistance(name, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}
