// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// Owner is the owner of every golden plan.
const Owner interception.Owner = "golden-mesh"

// Case is one golden file.
type Case struct {
	// Name is the file's name without its extension.
	Name string
	// Pod and Facts are the subject of the case.
	Pod   interception.Pod
	Facts interception.Facts
	// Overrides has settings that a pod cannot request.
	Overrides Overrides
	// Packets are sent through the plan.
	Packets []trace.Packet

	path    string
	archive *txtar.Archive
}

// Overrides changes the redirect that a pod requests. The zero value changes nothing.
type Overrides struct {
	// UIDs and GIDs are the proxy's ids.
	UIDs []interception.UID
	GIDs []interception.GID
	// DNSServers are the resolvers whose queries are captured.
	DNSServers []netip.Prefix
	// Loopback stays within the pod; an empty list that is not nil means no prefixes.
	Loopback []netip.Prefix
	// Spare excludes older connections from capture.
	Spare bool
}

func (o Overrides) apply(r *sidecar.Redirect) {
	if o.UIDs != nil {
		r.Proxy.UIDs = interception.UIDs(o.UIDs...)
	}
	if o.GIDs != nil {
		r.Proxy.GIDs = interception.GIDs(o.GIDs...)
	}
	if o.DNSServers != nil {
		r.DNS.Servers = interception.Prefixes(o.DNSServers...)
	}
	if o.Loopback != nil {
		r.Outbound.Loopback = interception.Prefixes(o.Loopback...)
	}
	if o.Spare {
		r.Existing = sidecar.ExistingSpare
	}
}

// LargeIDs is the folder of the cases whose ids are larger than 16 bits. An ordinary user's
// namespace has no such ids, so that no process there can be the proxy, and iptables refuses the
// names.
const LargeIDs = "large-ids"

// Load reads every case in a directory, sorted by name, without those in subfolders.
func Load(dir string) ([]Case, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no golden case in %s", dir)
	}
	var cases []Case
	for _, path := range paths {
		c, err := load(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

func load(path string) (Case, error) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		return Case{}, err
	}
	c := Case{Name: strings.TrimSuffix(filepath.Base(path), ".txtar"), path: path, archive: archive}
	if err := decode(c.Section("pod.json"), &c.Pod); err != nil {
		return Case{}, fmt.Errorf("pod.json: %w", err)
	}
	if err := decode(c.Section("facts.json"), &c.Facts); err != nil {
		return Case{}, fmt.Errorf("facts.json: %w", err)
	}
	if overrides := c.Section("overrides.json"); overrides != "" {
		if err := decode(overrides, &c.Overrides); err != nil {
			return Case{}, fmt.Errorf("overrides.json: %w", err)
		}
	}
	for line := range strings.Lines(c.Section("packets")) {
		packet, err := trace.ParsePacket(strings.TrimSpace(line))
		if err != nil {
			return Case{}, err
		}
		c.Packets = append(c.Packets, packet)
	}
	if len(c.Packets) == 0 {
		return Case{}, errors.New("no packets: a case says where some end")
	}
	return c, nil
}

// decode is strict, so that a misspelt field is no silent default.
func decode(text string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// Redirect returns the case's redirect, with the warnings of its pod's annotations.
func (c Case) Redirect() (sidecar.Redirect, []interception.Warning, error) {
	redirect, warnings, err := sidecar.Istio().Parse(c.Pod)
	if err != nil {
		return sidecar.Redirect{}, nil, err
	}
	c.Overrides.apply(&redirect)
	return redirect, warnings, nil
}

// Plan returns the case's plan, with the warnings of its pod's annotations.
func (c Case) Plan() (*interception.Plan, []interception.Warning, error) {
	redirect, warnings, err := c.Redirect()
	if err != nil {
		return nil, nil, err
	}
	plan, err := sidecar.Plan(redirect, c.Facts, Owner)
	return plan, warnings, err
}

// Section returns the text of a file of the archive; "" if it does not exist.
func (c Case) Section(name string) string {
	i := slices.IndexFunc(c.archive.Files, func(f txtar.File) bool { return f.Name == name })
	if i < 0 {
		return ""
	}
	return string(c.archive.Files[i].Data)
}

// SetSection appends a file to the archive, and drops an earlier one of the name: files are in the
// order of the calls.
func (c Case) SetSection(name, text string) {
	c.archive.Files = slices.DeleteFunc(c.archive.Files, func(f txtar.File) bool { return f.Name == name })
	c.archive.Files = append(c.archive.Files, txtar.File{Name: name, Data: []byte(text)})
}

// Sections returns the names of the archive's files, in order.
func (c Case) Sections() []string {
	names := make([]string, len(c.archive.Files))
	for i, f := range c.archive.Files {
		names[i] = f.Name
	}
	return names
}

// Save writes the archive back if it changed.
func (c Case) Save() error {
	text := txtar.Format(c.archive)
	old, err := os.ReadFile(c.path)
	if err != nil || bytes.Equal(old, text) {
		return err
	}
	return os.WriteFile(c.path, text, 0o644)
}

// ApplicationPort is the port of every case's application, TCP and UDP.
const ApplicationPort interception.Port = 8080

// World returns the pod of every case, with the given plan: the default addresses of a sidecar's
// world, the application, and the proxy, whose inbound listener is transparent.
func World(plan *interception.Plan) trace.World {
	return trace.Sidecar(plan, trace.SidecarOptions{Listeners: []trace.Listener{
		{Name: "application", Protocol: interception.ProtocolTCP, Port: ApplicationPort},
		{Name: "application", Protocol: interception.ProtocolUDP, Port: ApplicationPort},
		{Name: "proxy-outbound", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15001},
		{Name: "proxy-inbound", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15006, Transparent: true},
	}})
}

// Features returns the features of a plan: ids, kinds of objects, and for each table its hooks, the
// conditions of its rules and entries, plain or negated, and its actions.
func Features(plan *interception.Plan) map[string]bool {
	all := map[string]bool{}
	note := func(format string, arguments ...any) { all[fmt.Sprintf(format, arguments...)] = true }
	for _, object := range plan.Objects {
		note("object %T", object)
		if id := reflect.ValueOf(object).FieldByName("ID"); id.IsValid() {
			note("id %s", id)
		}
	}
	for set := range plan.Sets() {
		note("set %s", set.Name)
	}
	for table := range plan.Tables() {
		for _, entry := range table.Entries {
			note("id %s", entry.ID)
			note("%s: hook %s", table.Kind, entry.Hook)
			for _, condition := range conditions(entry.Match) {
				note("%s: entry with %s", table.Kind, condition)
			}
		}
	}
	for at, rule := range plan.Rules() {
		note("id %s", rule.ID)
		note("%s: %T", at.Table, rule.Action)
		for _, condition := range conditions(rule.Match) {
			note("%s: %s", at.Table, condition)
		}
	}
	return all
}

// condition is any interception.Condition.
type condition interface {
	Present() bool
	Negated() bool
}

// conditions returns the fields that a match has, and which of them are negated.
func conditions(m interception.Match) []string {
	var all []string
	note := func(name string, value any) {
		switch c := value.(type) {
		case condition:
			if c.Present() {
				all = append(all, fmt.Sprintf("%s negated %t", name, c.Negated()))
			}
		case interception.L4:
		default:
			if !reflect.ValueOf(value).IsZero() {
				all = append(all, name)
			}
		}
	}
	for field, value := range reflect.ValueOf(m).Fields() {
		note(field.Name, value.Interface())
	}
	note("protocol "+m.L4.Protocol().String(), m.L4.Protocol())
	note("source port", m.L4.SrcPort())
	note("destination port", m.L4.DstPort())
	note("flags", m.L4.TCPFlags())
	return all
}
