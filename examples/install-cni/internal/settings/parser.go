// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/examples/install-cni/internal/profiling"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/internal/spool"
	"github.com/meshcni/meshcni/kubeconfig"
)

// parser turns the text of one setting into its part of the Settings.
type parser struct {
	kind  string
	shape shape // of the value in a chart
	apply func(s *Settings, value string) error
}

func text(of func(*Settings) *string) parser {
	return parser{kind: "string", shape: shape{Type: "string"}, apply: func(s *Settings, value string) error { *of(s) = value; return nil }}
}

func boolean(of func(*Settings) *bool) parser {
	return parser{kind: "bool", shape: shape{Type: "boolean"}, apply: func(s *Settings, value string) (err error) {
		*of(s), err = parseBool(value)
		return err
	}}
}

// parseBool accepts what strconv accepts, and the empty text as false: an empty variable has always
// meant that.
func parseBool(value string) (bool, error) {
	if value == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("not a boolean; write true or false")
	}
	return b, nil
}

// only accepts one boolean: the other is for a way to install that does not exist yet.
func only(want bool, why string) parser {
	return parser{kind: "bool", shape: shape{Type: "boolean", Enum: []any{want}}, apply: func(_ *Settings, value string) error {
		got, err := parseBool(value)
		if err == nil && got != want {
			err = fmt.Errorf("%s; set it to %v or leave it out", why, want)
		}
		return err
	}}
}

// unused accepts every value of its kind.
func unused(kind string) parser {
	p := ignored(kind, "", "")
	judge := p.apply
	p.apply = func(_ *Settings, value string) error { return judge(&Settings{}, value) }
	return p
}

// ignored accepts every value, and records the name if the value would have changed something.
func ignored(kind, name, standard string) parser {
	return parser{kind: kind, shape: shape{Type: map[string]string{"bool": "boolean"}[kind]}, apply: func(s *Settings, value string) error {
		if kind == "bool" {
			got, err := parseBool(value)
			if err != nil {
				return err
			}
			value = strconv.FormatBool(got)
		}
		if value != standard {
			s.Ignored = append(s.Ignored, name)
		}
		return nil
	}}
}

// list parses members separated by commas; spaces around them and empty ones are ignored.
func list(kind string, item shape, of func(*Settings) *[]string, parse func(string) (string, error)) parser {
	return parser{kind: kind, shape: shape{Type: "array", Items: &item}, apply: func(s *Settings, value string) error {
		all := []string{}
		for member := range strings.SplitSeq(value, ",") {
			if member = strings.TrimSpace(member); member == "" {
				continue
			}
			parsed, err := parse(member)
			if err != nil {
				return err
			}
			all = append(all, parsed)
		}
		*of(s) = all
		return nil
	}}
}

func oneOf(of func(*Settings) *string, allowed ...string) parser {
	values := make([]any, len(allowed))
	for i, value := range allowed {
		values[i] = value
	}
	return parser{kind: "string", shape: shape{Type: "string", Enum: values}, apply: func(s *Settings, value string) error {
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("write one of %q", allowed)
		}
		*of(s) = value
		return nil
	}}
}

func directory(of func(*Settings) *string) parser {
	optional := optionalPath(of)
	return parser{kind: "path", shape: shape{Type: "string", Pattern: "^/"}, apply: func(s *Settings, value string) error {
		if value == "" {
			return fmt.Errorf("a directory is needed")
		}
		return optional.apply(s, value)
	}}
}

func optionalPath(of func(*Settings) *string) parser {
	return parser{kind: "path", shape: shape{Type: "string", Pattern: "^(/|$)"}, apply: func(s *Settings, value string) error {
		if value == "" {
			*of(s) = ""
			return nil
		}
		if !filepath.IsAbs(value) || strings.ContainsRune(value, 0) {
			return fmt.Errorf("write an absolute path")
		}
		*of(s) = filepath.Clean(value)
		return nil
	}}
}

// ownDirectory parses a directory that this program writes to: not a directory of the system.
func ownDirectory(of func(*Settings) *string) parser {
	whichever := directory(of)
	return parser{kind: whichever.kind, shape: whichever.shape, apply: func(s *Settings, value string) error {
		if err := whichever.apply(s, value); err != nil {
			return err
		}
		for _, system := range []string{"/proc", "/sys", "/dev"} {
			if path := *of(s); path == "/" || path == system || strings.HasPrefix(path, system+"/") {
				return fmt.Errorf("files are written there: name a directory of their own")
			}
		}
		return nil
	}}
}

// duration parses a time of the plugin's configuration.
func duration(of func(*Settings) *pluginconf.Timeout) parser {
	const pattern = `^([0-9.]+(ns|us|µs|ms|s|m|h))*$`
	return parser{kind: "duration", shape: shape{Type: "string", Pattern: pattern}, apply: func(s *Settings, value string) error {
		*of(s) = pluginconf.Timeout(value)
		if of(s).Validate() != nil {
			return fmt.Errorf("write a time above zero with its unit, such as 20s")
		}
		return nil
	}}
}

// pluginLevel parses a level of the plugin, or nothing.
func pluginLevel(of func(*Settings) *string) parser {
	levels := shape{Type: "string", Enum: []any{"", "debug", "info", "warn", "error", "fatal", "none"}}
	return parser{kind: "string", shape: levels, apply: func(s *Settings, value string) error {
		if _, err := pluginconf.ParseLevel(value); err != nil {
			return fmt.Errorf("write debug, info, warn, error, fatal or none")
		}
		*of(s) = value
		return nil
	}}
}

// kubeconfigName parses the name of a kubeconfig, or nothing.
func kubeconfigName(of func(*Settings) *string) parser {
	named := shape{Type: "string", Pattern: `^([^/]*kubeconfig)?$`}
	return parser{kind: "name", shape: named, apply: func(s *Settings, value string) error {
		*of(s) = value
		if value == "" {
			return nil
		}
		return checkKubeconfigName(value)
	}}
}

// logSocket parses a path that also defines the run directory.
func logSocket() parser {
	socket := shape{Type: "string", Pattern: `^(/.+/log\.sock)?$`}
	return parser{kind: "path", shape: socket, apply: func(s *Settings, value string) error {
		directory := filepath.Dir(filepath.Clean(value))
		switch {
		case value == "":
			return nil
		case !filepath.IsAbs(value) || filepath.Base(value) != spool.IstioLogSocket || directory == "/":
			return fmt.Errorf("write an absolute path of a socket that is called %s", spool.IstioLogSocket)
		case s.RunDir == PluginPaths().RunDir || s.RunDir == "":
			s.RunDir = directory
		case s.RunDir != directory:
			return fmt.Errorf("it is not in cni-agent-run-dir, %s: set one of them only", s.RunDir)
		}
		return nil
	}}
}

func words(of func(*Settings) *[]string) parser {
	item := shape{Type: "string", Pattern: `^[^/, ]+$`}
	return parser{kind: "list", shape: shape{Type: "array", Items: &item}, apply: func(s *Settings, value string) error {
		names := []string{}
		for _, name := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
			if name != filepath.Base(name) || !filepath.IsLocal(name) {
				return fmt.Errorf("%q is not a bare file name", name)
			}
			names = append(names, name)
		}
		*of(s) = names
		return nil
	}}
}

// fileName parses the name of a CNI configuration inside its directory, and never leads out of it.
func fileName(of func(*Settings) *string) parser {
	const pattern = `^([^/\\.][^/\\]*\.(conflist|conf|json))?$`
	return parser{kind: "name", shape: shape{Type: "string", Pattern: pattern}, apply: func(s *Settings, value string) error {
		extension := filepath.Ext(value)
		switch {
		case value == "":
		case value != filepath.Base(value) || strings.ContainsAny(value, "/\\\x00") || strings.Trim(value, ".") == strings.Trim(extension, "."):
			return fmt.Errorf("write a bare file name, such as 10-calico.conflist")
		case !slices.Contains([]string{".conflist", ".conf", ".json"}, extension):
			return fmt.Errorf("container runtimes don't read files of this extension; write a name that ends in .conflist, .conf or .json")
		}
		*of(s) = value
		return nil
	}}
}

func port(of func(*Settings) *string) parser {
	bounds := shape{Type: "integer", Minimum: new(1), Maximum: new(math.MaxUint16)}
	return parser{kind: "port", shape: bounds, apply: func(s *Settings, value string) error {
		if value != "" {
			if n, err := strconv.ParseUint(value, 10, 16); err != nil || n == 0 {
				return fmt.Errorf("write a port number from 1 to 65535")
			}
		}
		*of(s) = value
		return nil
	}}
}

func address(of func(*Settings) *string) parser {
	return parser{kind: "address", shape: shape{Type: "string", Pattern: `:[0-9]+$`}, apply: func(s *Settings, value string) error {
		_, port, err := net.SplitHostPort(value)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return fmt.Errorf("write host:port or :port, such as :8000")
		}
		*of(s) = value
		return nil
	}}
}

// monitoringPort parses Istio's port number; zero and less mean no port.
func monitoringPort() parser {
	return parser{kind: "port", shape: shape{Type: "integer", Maximum: new(math.MaxUint16)}, apply: func(s *Settings, value string) error {
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n > math.MaxUint16 {
			return fmt.Errorf("write a port number from 1 to 65535, or 0 for none")
		}
		s.MetricsAddress = ""
		if n > 0 {
			s.MetricsAddress = ":" + value
		}
		return nil
	}}
}

// loopback parses an address that only this machine can reach.
func loopback(of func(*Settings) *string) parser {
	address := address(of)
	address.shape.Pattern = `^((127\.[0-9.]+|\[[0-9a-f:]+\]):[0-9]+)?$`
	return parser{kind: address.kind, shape: address.shape, apply: func(s *Settings, value string) error {
		if value == "" {
			*of(s) = ""
			return nil
		}
		if err := profiling.CheckAddress(value); err != nil {
			return err
		}
		return address.apply(s, value)
	}}
}

// kubeconfigMode parses a number as Go and C write it, so 600 would be decimal: the error explains
// this trap.
func kubeconfigMode() parser {
	return parser{kind: "mode", shape: shape{Type: "string", Pattern: `^0[0-7]+$`}, apply: func(s *Settings, value string) error {
		mode, err := strconv.ParseUint(value, 0, 32)
		if err != nil {
			return fmt.Errorf("write octal permission bits, such as 0600")
		}
		if err := kubeconfig.CheckMode(fs.FileMode(mode)); err != nil {
			return err
		}
		s.KubeconfigMode = fs.FileMode(mode)
		return nil
	}}
}

// logOutputLevel parses Istio's level option: a level for everything, or scope:level pairs.
// "default" (or "all") and the scopes of this daemon apply here, and "cni-plugin" to the plugin.
// Other scopes do not exist here and are ignored.
func logOutputLevel() parser {
	return parser{kind: "levels", shape: shape{Type: "string"}, apply: func(s *Settings, value string) error {
		s.LogLevel, s.PluginLogLevel = slog.LevelInfo, "info"
		var scoped []func()
		for pair := range strings.SplitSeq(value, ",") {
			scope, name, found := strings.Cut(strings.TrimSpace(pair), ":")
			if !found {
				scope, name = "default", scope
			}
			level, err := pluginconf.ParseLevel(name)
			if err != nil || name == "" {
				return fmt.Errorf("%q is not a level; write debug, info, warn, error or none", name)
			}
			switch scope {
			case "default", "all":
				s.LogLevel, s.PluginLogLevel = level, name
			case "cni-agent", "install":
				scoped = append(scoped, func() { s.LogLevel = level })
			case "cni-plugin":
				scoped = append(scoped, func() { s.PluginLogLevel = name })
			}
		}
		// A scope's own level applies wherever it is in the list.
		for _, set := range scoped {
			set()
		}
		return nil
	}}
}
