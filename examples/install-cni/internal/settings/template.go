// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// HasTemplate reports whether the plugin's entry is made from a template, as in Istio before 1.23.
func (s Settings) HasTemplate() bool { return s.Template != "" || s.TemplateFile != "" }

// TemplateEntry returns the plugin's entry from the template, by its keys: with its placeholders
// filled in, and without cniVersion, which belongs to the list. It returns nil without a template.
func (s Settings) TemplateEntry() (map[string]json.RawMessage, error) {
	if !s.HasTemplate() {
		return nil, nil
	}
	text, source, err := s.templateText()
	if err != nil {
		return nil, err
	}
	filled, err := s.fill(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	var entry map[string]json.RawMessage
	if err := json.Unmarshal([]byte(filled), &entry); err != nil {
		return nil, fmt.Errorf("%s: it is not a JSON object when its placeholders are filled in: %w", source, err)
	}
	delete(entry, "cniVersion")
	if kind := string(entry["type"]); kind != `"istio-cni"` {
		return nil, fmt.Errorf(`%s: type is %s; write the entry of istio-cni by itself, with "type": "istio-cni"`, source, kind)
	}
	if _, err := PluginPaths().Parse([]byte(filled)); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return entry, nil
}

// templateText returns the file's content or, if the file is missing, the text.
func (s Settings) templateText() (text, source string, err error) {
	read := s.TemplateRead
	if read == nil {
		read = readTemplate(s.TemplateFile)
	}
	if read != nil && (s.Template == "" || !errors.Is(read.Err, fs.ErrNotExist)) {
		return read.Text, templateFileSetting, read.Err
	}
	return s.Template, "cni-network-config", nil
}

// templateFileSetting is the name of the setting for a template's file.
const templateFileSetting = "cni-network-config-file"

// TemplateRead is a reading of a template's file. Settings that have one don't read the file again:
// all programs of the node get the same, and go on with it while the file is unusable.
type TemplateRead struct {
	Text string
	Err  error // why the file couldn't be read; nil if it was
}

// readTemplate reads a template's file; nil without one.
func readTemplate(path string) *TemplateRead {
	if path == "" {
		return nil
	}
	text, err := readFile(path)
	return &TemplateRead{text, err}
}

// same reports whether two readings found the same. Both are usable: the only error that one of
// them can have is that the file is missing.
func (r *TemplateRead) same(as *TemplateRead) bool {
	if r == nil || as == nil {
		return r == as
	}
	return r.Text == as.Text && (r.Err == nil) == (as.Err == nil)
}

// fill replaces the placeholders, most of which are in JSON strings.
func (s Settings) fill(template string) (string, error) {
	values := s.placeholders()
	var problems []error
	filled := regexp.MustCompile(`__[A-Z0-9]+(_[A-Z0-9]+)*__`).ReplaceAllStringFunc(template, func(name string) string {
		value, known := values[name]
		switch {
		case name == "__SERVICEACCOUNT_TOKEN__":
			problems = append(problems, fmt.Errorf("%s: no token goes into a CNI configuration; the plugin has it from the kubeconfig: "+
				`write "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"}`, name))
		case !known:
			problems = append(problems, fmt.Errorf("%s is not a placeholder; those are %s", name, strings.Join(slices.Sorted(maps.Keys(values)), ", ")))
		case value.text == "":
			problems = append(problems, fmt.Errorf("%s: set %s", name, value.setting))
		}
		quoted, err := json.Marshal(value.text)
		if err != nil {
			problems = append(problems, err)
		}
		return strings.Trim(string(quoted), `"`)
	})
	return filled, errors.Join(problems...)
}

// placeholder is a value, and the setting that it comes from.
type placeholder struct{ text, setting string }

func (s Settings) placeholders() map[string]placeholder {
	return map[string]placeholder{
		"__LOG_LEVEL__":                   {cmp.Or(s.TemplateLevel, s.PluginLogLevel), "log-level"},
		"__LOG_UDS_ADDRESS__":             {s.LogSocket(), "log-uds-address"},
		"__KUBECONFIG_FILENAME__":         {s.KubeconfigName(), "kubecfg-file-name"},
		"__KUBECONFIG_FILEPATH__":         {s.KubeconfigOnNode(), "kubecfg-file-name"},
		"__KUBERNETES_SERVICE_PROTOCOL__": {cmp.Or(s.APIProtocol, "https"), "kubernetes-service-protocol"},
		"__KUBERNETES_SERVICE_HOST__":     {s.APIHost, "kubernetes-service-host"},
		"__KUBERNETES_SERVICE_PORT__":     {s.APIPort, "kubernetes-service-port"},
		"__KUBERNETES_NODE_NAME__":        {s.NodeName, "node-name"},
	}
}
