// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// This file models what libcni 1.3 loads. It uses the same decoder, and so has the same leniency
// (any spelling of the keys of a plugin, the last of several keys) and the same limits (a number
// that does not fit a float64). The tests compare it with libcni.

// loadList loads a list; the error is the reason why a runtime does not.
func loadList(doc []byte) (Network, error) {
	var raw map[string]any
	if err := json.Unmarshal(doc, &raw); err != nil {
		return Network{}, fmt.Errorf("no runtime can read it: %w", err)
	}
	name, ok := raw["name"].(string)
	if !ok {
		return Network{}, errors.New(`it has no "name" that is a string`)
	}
	version, err := checkVersions(raw)
	if err != nil {
		return Network{}, err
	}
	onlyInlined := false
	for _, key := range []string{"disableCheck", "disableGC", "loadOnlyInlinedPlugins"} {
		// The last of the keys counts.
		if onlyInlined, err = loadBool(raw, key); err != nil {
			return Network{}, err
		}
	}
	types, err := inlinedTypes(raw, onlyInlined)
	if err != nil {
		return Network{}, err
	}
	return Network{Name: name, CNIVersion: version, Types: types, OnlyInlined: onlyInlined}, nil
}

// inlinedTypes returns the types of a list's own plugins.
func inlinedTypes(raw map[string]any, onlyInlined bool) ([]string, error) {
	plugins, ok := raw["plugins"]
	if !ok && onlyInlined {
		return nil, errors.New(`it has no "plugins", and "loadOnlyInlinedPlugins" forbids others`)
	}
	if !ok {
		return nil, nil
	}
	entries, ok := plugins.([]any)
	if !ok || len(entries) == 0 {
		return nil, errors.New(`its "plugins" is empty or not an array`)
	}
	types := make([]string, len(entries))
	for i, e := range entries {
		conf, err := loadEntry(e)
		if err != nil {
			return nil, fmt.Errorf("plugin %d of its list: %w", i+1, err)
		}
		types[i] = conf.Type
	}
	return types, nil
}

// checkVersions checks "cniVersion" and "cniVersions" (CNI 1.1), and returns the list's version.
func checkVersions(raw map[string]any) (version string, err error) {
	value, ok := raw["cniVersion"]
	own, isString := value.(string)
	if ok && !isString {
		return "", errors.New(`its "cniVersion" is not a string`)
	}
	versions, ok := raw["cniVersions"]
	if !ok {
		return own, nil
	}
	list, isList := versions.([]any)
	if !isList {
		return "", errors.New(`its "cniVersions" is not an array`)
	}
	var others []string
	for _, v := range list {
		s, isString := v.(string)
		if !isString || !isVersion(s) {
			return "", fmt.Errorf(`its "cniVersions" has %v, which is not a version`, v)
		}
		others = append(others, s)
	}
	// libcni validates cniVersion only after it has compared it with the others.
	if !isVersion(own) {
		return "", fmt.Errorf(`its "cniVersion" is %q, which is not a version`, own)
	}
	return newest(own, others), nil
}

// isVersion reports whether libcni accepts s as a version: up to three integers separated by dots.
// The empty version means 0.1.0.
func isVersion(s string) bool {
	if s == "" {
		return true
	}
	parts := strings.Split(s, ".")
	for _, part := range parts {
		if _, err := strconv.Atoi(part); err != nil {
			return false
		}
	}
	return len(parts) <= 3
}

// loadBool reads a bool that may be written as a string.
func loadBool(raw map[string]any, key string) (bool, error) {
	value, ok := raw[key]
	if !ok {
		return false, nil
	}
	switch v := value.(type) {
	case bool:
		return v, nil
	case string:
		switch strings.ToLower(v) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	}
	return false, fmt.Errorf("its %q is %v, which is neither true nor false", key, value)
}

// pluginConf has the keys that a runtime decodes, so their values must have the right form.
type pluginConf struct {
	CNIVersion   string          `json:"cniVersion"`
	Name         string          `json:"name"`
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	IPAM         struct {
		Type string `json:"type"`
	} `json:"ipam"`
	DNS struct {
		Nameservers []string `json:"nameservers"`
		Domain      string   `json:"domain"`
		Search      []string `json:"search"`
		Options     []string `json:"options"`
	} `json:"dns"`
	PrevResult       map[string]any `json:"prevResult"`
	ValidAttachments []struct {
		ContainerID string `json:"containerID"`
		IfName      string `json:"ifname"`
	} `json:"cni.dev/valid-attachments"`
}

// loadPlugin decodes a plugin's configuration; the error is why a runtime does not load it.
func loadPlugin(doc []byte) (conf pluginConf, err error) {
	if err := json.Unmarshal(doc, &conf); err != nil {
		return conf, fmt.Errorf("no runtime can read it: %w", err)
	}
	if conf.Type == "" {
		return conf, errors.New(`it has no "type"`)
	}
	return conf, nil
}

// loadEntry does the same for an entry of a list, which a runtime first decodes and encodes.
func loadEntry(entry any) (pluginConf, error) {
	doc, err := json.Marshal(entry)
	if err != nil {
		return pluginConf{}, err
	}
	return loadPlugin(doc)
}

// loadSingle loads a single configuration, from which a runtime makes a list with one plugin.
func loadSingle(doc []byte) (Network, error) {
	conf, err := loadPlugin(doc)
	if err != nil {
		return Network{}, err
	}
	var raw map[string]any
	if err := json.Unmarshal(doc, &raw); err != nil {
		return Network{}, fmt.Errorf("no runtime can read it: %w", err)
	}
	if _, err := loadEntry(raw); err != nil {
		return Network{}, err
	}
	return Network{Name: conf.Name, CNIVersion: conf.CNIVersion, Types: []string{conf.Type}, Single: true, OnlyInlined: true}, nil
}

// isNetworkName reports whether s is a valid network name by the CNI specification: letters and
// digits, and after the first one also underscores, dots and hyphens. Such a name cannot lead out
// of the configuration directory.
func isNetworkName(s string) bool {
	for i, r := range s {
		alphanumeric := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !alphanumeric && (i == 0 || !strings.ContainsRune("_.-", r)) {
			return false
		}
	}
	return s != "" && len(s) <= 255
}
