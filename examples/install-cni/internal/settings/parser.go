// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

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

// parsed returns a parser that stores in a field what parse returns, unless parse fails.
func parsed[T any](kind string, in shape, field func(*Settings) *T, parse func(string) (T, error)) parser {
	return parser{kind: kind, shape: in, apply: func(s *Settings, value string) error {
		result, err := parse(value)
		if err == nil {
			*field(s) = result
		}
		return err
	}}
}

// checked returns a parser that stores a text as it is, if check accepts it.
func checked(kind string, in shape, field func(*Settings) *string, check func(string) error) parser {
	return parsed(kind, in, field, func(value string) (string, error) { return value, check(value) })
}

// matching returns a parser that stores a text if the shape's own pattern and length allow it. The
// remedy is the error for other texts.
func matching(kind string, in shape, field func(*Settings) *string, remedy string) parser {
	return checked(kind, in, field, func(value string) error {
		if matched, err := regexp.MatchString(in.Pattern, value); err != nil || !matched || len(value) > in.MaxLength {
			return errors.New(remedy)
		}
		return nil
	})
}

func text(of func(*Settings) *string) parser {
	return checked("string", shape{Type: "string"}, of, func(string) error { return nil })
}

func boolean(of func(*Settings) *bool) parser {
	return parsed("bool", shape{Type: "boolean"}, of, parseBool)
}

// parseBool accepts what strconv accepts, and the empty text as false: an empty variable has always
// meant that.
func parseBool(value string) (bool, error) {
	if value == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(value)
	if err != nil {
		return false, errors.New("not a boolean; write true or false")
	}
	return b, nil
}

// ignored accepts every value of its kind. It records the name, unless that is empty, if the value
// would have changed something.
func ignored(kind, name, standard string) parser {
	return parser{kind: kind, shape: shape{Type: map[string]string{"bool": "boolean"}[kind]}, apply: func(s *Settings, value string) error {
		if kind == "bool" {
			got, err := parseBool(value)
			if err != nil {
				return err
			}
			value = strconv.FormatBool(got)
		}
		if value != standard && name != "" {
			s.Ignored = append(s.Ignored, name)
		}
		return nil
	}}
}

// list parses each member that split returns; spaces around members and empty ones are ignored.
func list(
	kind string, item shape, of func(*Settings) *[]string, split func(string) []string, parse func(string) (string, error),
) parser {
	return parsed(kind, shape{Type: "array", Items: &item}, of, func(value string) ([]string, error) {
		all := []string{}
		for _, member := range split(value) {
			if member = strings.TrimSpace(member); member == "" {
				continue
			}
			result, err := parse(member)
			if err != nil {
				return nil, err
			}
			all = append(all, result)
		}
		return all, nil
	})
}

func atCommas(value string) []string { return strings.Split(value, ",") }

// words parses file names, separated by commas or blanks.
func words(of func(*Settings) *[]string) parser {
	split := func(value string) []string {
		return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	}
	return list("list", shape{Type: "string", Pattern: `^[^/, ]+$`}, of, split, func(name string) (string, error) {
		if name != filepath.Base(name) || !filepath.IsLocal(name) {
			return "", fmt.Errorf("%q is not a bare file name", name)
		}
		return name, nil
	})
}

func oneOf(of func(*Settings) *string, allowed ...string) parser {
	values := make([]any, len(allowed))
	for i, value := range allowed {
		values[i] = value
	}
	return checked("string", shape{Type: "string", Enum: values}, of, func(value string) error {
		if !slices.Contains(allowed, value) {
			return errors.New("write one of " + choices(allowed))
		}
		return nil
	})
}

// choices returns the allowed values as a list for people.
func choices(allowed []string) string {
	named := slices.DeleteFunc(slices.Clone(allowed), func(value string) bool { return value == "" })
	text := strings.Join(named, ", ")
	if len(named) < len(allowed) {
		text += ", or leave it empty"
	}
	return text
}

func optionalPath(of func(*Settings) *string) parser {
	return parsed("path", shape{Type: "string", Pattern: "^(/|$)"}, of, absolute)
}

func directory(of func(*Settings) *string) parser {
	return parsed("path", shape{Type: "string", Pattern: "^/"}, of, absoluteDirectory)
}

// ownDirectory parses a directory that this program writes to: not a directory of the system.
func ownDirectory(of func(*Settings) *string) parser {
	return parsed("path", shape{Type: "string", Pattern: "^/"}, of, func(value string) (string, error) {
		path, err := absoluteDirectory(value)
		if err == nil && ofSystem(path) {
			err = errors.New("files are written there: name a directory of their own")
		}
		return path, err
	})
}

// ofSystem reports whether a clean path is the root, or one of the kernel's own file systems: no
// place to write files to.
func ofSystem(path string) bool {
	return path == "/" || slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(system string) bool {
		return path == system || strings.HasPrefix(path, system+"/")
	})
}

func absoluteDirectory(value string) (string, error) {
	if value == "" {
		return "", errors.New("a directory is needed")
	}
	return absolute(value)
}

// absolute cleans an absolute path; an empty one stays empty.
func absolute(value string) (string, error) {
	switch {
	case value == "":
		return "", nil
	case !filepath.IsAbs(value) || strings.ContainsRune(value, 0):
		return "", errors.New("write an absolute path")
	}
	return filepath.Clean(value), nil
}

// times is the pattern of a time with its unit; repeated, it is that of a duration such as 1h30m.
const times = `([0-9.]+(ns|us|µs|ms|s|m|h))`

// duration parses a time of the plugin's configuration.
func duration(of func(*Settings) *pluginconf.Timeout) parser {
	return parsed("duration", shape{Type: "string", Pattern: "^" + times + "*$"}, of, func(value string) (pluginconf.Timeout, error) {
		timeout := pluginconf.Timeout(value)
		if timeout.Validate() != nil {
			return "", errors.New("write a time above zero with its unit, such as 20s")
		}
		return timeout, nil
	})
}

// span parses a duration of at least a second.
func span(of func(*Settings) *time.Duration) parser {
	return parsed("duration", shape{Type: "string", Pattern: "^" + times + "+$"}, of, func(value string) (time.Duration, error) {
		d, err := time.ParseDuration(value)
		if err != nil || d < time.Second {
			return 0, errors.New("write a time of at least a second with its unit, such as 10m")
		}
		return d, nil
	})
}

// pluginLevel parses a level of the plugin, or nothing.
func pluginLevel(of func(*Settings) *string) parser {
	levels := shape{Type: "string", Enum: []any{"", "debug", "info", "warn", "error", "fatal", "none"}}
	return checked("string", levels, of, func(value string) error {
		if _, err := pluginconf.ParseLevel(value); err != nil {
			return errors.New("write debug, info, warn, error, fatal or none")
		}
		return nil
	})
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

// fileName parses the name of a CNI configuration inside its directory, and never leads out of it.
func fileName(of func(*Settings) *string) parser {
	const pattern = `^([^/\\.][^/\\]*\.(conflist|conf|json))?$`
	return checked("name", shape{Type: "string", Pattern: pattern}, of, func(value string) error {
		extension := filepath.Ext(value)
		switch {
		case value == "":
		case value != filepath.Base(value) || strings.ContainsAny(value, "/\\\x00") || strings.Trim(value, ".") == strings.Trim(extension, "."):
			return errors.New("write a bare file name, such as 10-calico.conflist")
		case !slices.Contains([]string{".conflist", ".conf", ".json"}, extension):
			return errors.New("container runtimes don't read files of this extension; write a name that ends in .conflist, .conf or .json")
		}
		return nil
	})
}

func port(of func(*Settings) *string) parser {
	bounds := shape{Type: "integer", Minimum: new(1), Maximum: new(math.MaxUint16)}
	return checked("port", bounds, of, func(value string) error {
		if n, err := strconv.ParseUint(value, 10, 16); value != "" && (err != nil || n == 0) {
			return errors.New("write a port number from 1 to 65535")
		}
		return nil
	})
}

// monitoringPort parses Istio's port number; zero and less mean no port.
func monitoringPort() parser {
	of := func(s *Settings) *string { return &s.MetricsAddress }
	return parsed("port", shape{Type: "integer", Maximum: new(math.MaxUint16)}, of, func(value string) (string, error) {
		switch n, err := strconv.ParseInt(value, 10, 32); {
		case err != nil || n > math.MaxUint16:
			return "", errors.New("write a port number from 1 to 65535, or 0 for none")
		case n > 0:
			return ":" + value, nil
		}
		return "", nil
	})
}

func address(of func(*Settings) *string) parser {
	return checked("address", shape{Type: "string", Pattern: `:[0-9]+$`}, of, checkAddress)
}

func checkAddress(value string) error {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New("write host:port or :port, such as :8000")
	}
	return nil
}

// loopback parses an address that only this machine can reach, or nothing. Host names are refused,
// whatever they resolve to today.
func loopback(of func(*Settings) *string) parser {
	const pattern = `^((127\.[0-9.]+|\[[0-9a-f:]+\]):[0-9]+)?$`
	return checked("address", shape{Type: "string", Pattern: pattern}, of, func(value string) error {
		if value == "" {
			return nil
		}
		host, _, err := net.SplitHostPort(value)
		if err != nil {
			return err
		}
		if ip, err := netip.ParseAddr(host); err != nil || !ip.Unmap().IsLoopback() {
			return errors.New("profiles are served on a loopback address only: write 127.0.0.1:PORT or [::1]:PORT")
		}
		return checkAddress(value)
	})
}

// kubeconfigMode parses a number as Go and C write it, so 600 would be decimal: the error explains
// this trap.
func kubeconfigMode() parser {
	of := func(s *Settings) *fs.FileMode { return &s.KubeconfigMode }
	return parsed("mode", shape{Type: "string", Pattern: `^0[0-7]+$`}, of, func(value string) (fs.FileMode, error) {
		mode, err := strconv.ParseUint(value, 0, 32)
		if err != nil {
			return 0, errors.New("write octal permission bits, such as 0600")
		}
		return fs.FileMode(mode), kubeconfig.CheckMode(fs.FileMode(mode))
	})
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
