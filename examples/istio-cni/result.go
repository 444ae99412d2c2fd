// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types/create"
)

// passThrough makes the result of a plugin that changes nothing: prevResult in the version of the configuration. When it has that
// already it stays as it is, byte for byte; otherwise the fields that its version knows are converted, and all others kept. A
// prevResult without version has the configuration's, as the specification demands. Without any, the result has only a version.
func passThrough(previous json.RawMessage, version string) ([]byte, error) {
	if len(previous) == 0 || string(previous) == "null" {
		return json.Marshal(map[string]string{"cniVersion": version})
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(previous, &fields); err != nil {
		return nil, errors.New("it is no JSON object")
	}
	if _, found := fields["cniVersion"]; !found {
		fields["cniVersion"], _ = json.Marshal(version)
		previous, _ = json.Marshal(fields)
	}
	from, err := create.DecodeVersion(previous)
	if err != nil {
		return nil, err
	}
	result, err := create.Create(from, previous)
	if err != nil {
		return nil, err
	}
	if from == version {
		return previous, nil
	}
	converted, err := result.GetAsVersion(version)
	if err != nil {
		return nil, fmt.Errorf("convert it from version %s to %s: %w", from, version, err)
	}
	all, known, target, err := threeTrees(previous, result, converted)
	if err != nil {
		return nil, err
	}
	extra, _ := unknown(all, known)
	return encode(keep(target, extra))
}

// threeTrees are the result as it came, what its version knows of it, and that in the other version, all as plain JSON values.
func threeTrees(raw []byte, result, converted any) (all, known, target any, err error) {
	encodedResult, err := encode(result)
	if err != nil {
		return nil, nil, nil, err
	}
	encodedConverted, err := encode(converted)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, tree := range []struct {
		from []byte
		to   *any
	}{{raw, &all}, {encodedResult, &known}, {encodedConverted, &target}} {
		decoder := json.NewDecoder(bytes.NewReader(tree.from))
		decoder.UseNumber() // what isn't ours to understand stays as it is written
		if err := decoder.Decode(tree.to); err != nil {
			return nil, nil, nil, err
		}
	}
	return all, known, target, nil
}

func encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return buffer.Bytes(), err
}

// unknown is the part of all that known doesn't have, in the same places; in a list, nil stands for items without any.
func unknown(all, known any) (extra any, found bool) {
	switch all := all.(type) {
	case map[string]any:
		known, ok := known.(map[string]any)
		if !ok {
			return nil, false
		}
		fields := map[string]any{}
		for key, value := range all {
			if other, ok := known[key]; !ok {
				fields[key] = value
			} else if part, ok := unknown(value, other); ok {
				fields[key] = part
			}
		}
		return fields, len(fields) > 0
	case []any:
		known, ok := known.([]any)
		if !ok || len(known) != len(all) {
			return nil, false
		}
		items := make([]any, len(all))
		for i := range all {
			if part, ok := unknown(all[i], known[i]); ok {
				items[i], found = part, true
			}
		}
		return items, found
	default:
		return nil, false
	}
}

// keep adds the extra parts to target, in their places, and changes nothing that is there.
func keep(target, extra any) any {
	switch extra := extra.(type) {
	case map[string]any:
		if target, ok := target.(map[string]any); ok {
			for key, part := range extra {
				if value, found := target[key]; found {
					target[key] = keep(value, part)
				} else {
					target[key] = part
				}
			}
		}
	case []any:
		if target, ok := target.([]any); ok && len(target) == len(extra) {
			for i, part := range extra {
				target[i] = keep(target[i], part)
			}
		}
	}
	return target
}
