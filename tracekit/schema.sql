-- The tables of a run, schema version 1: every column with its meaning.
-- Times are int64 ns from the run's start; bytes are int64; ids are int64 and unique within the run.
-- Columns that end in _json, input_dims, input_types, input_strides, concrete_inputs, grid and block hold JSON
-- text: read them with the JSON functions, for example input_dims->0.

create table trace (trace_id bigint, rank bigint, world_size bigint, source_name varchar, source_sha256 varchar, events bigint, dialect varchar, is_rewritten boolean, vendor varchar, external_ids varchar, time_resolution_ns bigint, device_name varchar, device_count bigint, sm_count bigint, compute_capability varchar, device_memory_bytes bigint, torch_version varchar, start_unix_ns bigint, dur_ns bigint, has_device boolean, has_shapes boolean, has_stacks boolean, has_modules boolean, has_memory boolean, truncated boolean, unprofiled_step_ns bigint, environment_json varchar, settings_json varchar, rank_source varchar, clock_status varchar, clock_reason varchar, clock_offset_ns bigint, clock_start_ns bigint, clock_spread_ns bigint, clock_matched bigint, clock_drift_ns_per_s double, clock_through_rank bigint);
comment on table trace is 'One profiler output file: one process, one rank.';
comment on column trace.trace_id is 'Id of the trace within the run.';
comment on column trace.rank is 'Rank in torch.distributed, as the trace says, else by file name or order among several; null where neither says.';
comment on column trace.world_size is 'Number of ranks of the job the trace comes from.';
comment on column trace.source_name is 'Name of the file it was read from, without its folder.';
comment on column trace.source_sha256 is 'SHA-256 of that file.';
comment on column trace.events is 'Entries of traceEvents in that file.';
comment on column trace.dialect is 'Which exporter wrote it and how it counts time, found from the data: kineto-2021-epoch (names before 2022-04), kineto-epoch-us, kineto-epoch-ns, kineto-relative-no-base, kineto-relative (of today), python-relative (export_chrome_trace(use_python_export=True)), list or list-epoch (events alone).';
comment on column trace.is_rewritten is 'Whether another tool wrote the file anew, by its layout; null where that does not tell.';
comment on column trace.vendor is 'Whose device was recorded: cuda, rocm, xpu, mtia, hpu, privateuse1, glow; cpu where there is no sign of one; null where there is, but not whose.';
comment on column trace.external_ids is 'What External ids of device work name: op, correlation (PyTorch before 2.6, which tells nothing of the op), none.';
comment on column trace.time_resolution_ns is 'To how many ns its times can be trusted, as they are written.';
comment on column trace.device_name is 'Name of the first device listed; null where none is named.';
comment on column trace.device_count is 'Devices visible to the process, used or not.';
comment on column trace.sm_count is 'Streaming multiprocessors (compute units on AMD) of the first device.';
comment on column trace.compute_capability is 'Compute capability of the first device (gfx version on AMD), as major.minor.';
comment on column trace.device_memory_bytes is 'Memory of the first device.';
comment on column trace.torch_version is 'PyTorch version, from the facts recorded beside the trace; a trace alone does not hold it.';
comment on column trace.start_unix_ns is 'Wall-clock time of the first row, ns since 1970; null where the exporter wrote none.';
comment on column trace.dur_ns is 'From the first op, frame, call or device work to the end of the last; the profiler''s own span is not counted.';
comment on column trace.has_device is 'Whether device work was recorded.';
comment on column trace.has_shapes is 'Whether ops carry input shapes (record_shapes).';
comment on column trace.has_stacks is 'Whether Python frames were recorded (with_stack).';
comment on column trace.has_modules is 'Whether nn.Module rows were recorded (with_stack).';
comment on column trace.has_memory is 'Whether allocator rows were recorded (profile_memory).';
comment on column trace.truncated is 'Whether the file was cut off and read only in part.';
comment on column trace.unprofiled_step_ns is 'Median host time of a step without the profiler, from facts.';
comment on column trace.environment_json is 'Versions and hardware as `tracekit capture` recorded them, JSON; null where it did not record.';
comment on column trace.settings_json is 'Torch''s settings as `tracekit capture` recorded them, such as which SDPA backends were allowed, JSON; null where it did not record.';
comment on column trace.rank_source is 'distributedInfo, file name or order; null where there is no rank.';
comment on column trace.clock_status is 'reference, estimated or not_derivable; null for a single trace.';
comment on column trace.clock_reason is 'Why it is not derivable, or what is missing.';
comment on column trace.clock_offset_ns is 'How far its wall clock is ahead of the lowest rank''s, estimated from the ends of shared collectives; applied to nothing.';
comment on column trace.clock_start_ns is 'Its time 0 in the lowest rank''s trace time; add it to lay both on one line. Applied to nothing.';
comment on column trace.clock_spread_ns is 'Median absolute deviation of the shared ends from that.';
comment on column trace.clock_matched is 'Collectives that were compared.';
comment on column trace.clock_drift_ns_per_s is 'Growth of the offset; null where no drift stands out from the noise.';
comment on column trace.clock_through_rank is 'Rank it was compared through, where it shares no collective with the lowest.';

create table step (step_id bigint, trace_id bigint, number bigint, name varchar, start_ns bigint, dur_ns bigint, is_partial boolean, is_cold boolean);
comment on table step is 'The profiler''s steps; one row for the whole trace where none was marked.';
comment on column step.step_id is 'Id of the step.';
comment on column step.trace_id is 'Trace it belongs to.';
comment on column step.number is 'N of ProfilerStep#N, a number that counts over the whole process; null for a whole trace.';
comment on column step.name is 'The annotation''s name, or `whole trace`.';
comment on column step.start_ns is 'When the host entered the step.';
comment on column step.dur_ns is 'Host time from entering to leaving it.';
comment on column step.is_partial is 'Recording stopped inside the step, or nothing was recorded in it.';
comment on column step.is_cold is 'First of several steps and much slower than their median: warm-up was still going on.';

create table op (op_id bigint, trace_id bigint, parent_id bigint, name varchar, kind varchar, pid varchar, tid varchar, start_ns bigint, dur_ns bigint, self_ns bigint, depth bigint, external_id bigint, sequence_number bigint, input_dims varchar, input_types varchar, input_strides varchar, concrete_inputs varchar, module_id bigint, step_id bigint, phase varchar, forward_op_id bigint, is_finished boolean, frame_id bigint, role varchar, role_confidence varchar, role_reason varchar, args_json varchar);
comment on table op is 'What the CPU did: operators, autograd nodes, annotations, collectives, compiled regions.';
comment on column op.op_id is 'Id of the op; ops are numbered in order of start, those of a large trace part by part.';
comment on column op.trace_id is 'Trace it belongs to.';
comment on column op.parent_id is 'Op in which it ran on its thread; null at the top.';
comment on column op.name is 'Name, as the profiler reports it.';
comment on column op.kind is 'op, annotation (user_annotation rows), autograd, collective or region (torch.compile).';
comment on column op.pid is 'Process id, as text: some exporters write names.';
comment on column op.tid is 'Thread id, as text.';
comment on column op.start_ns is 'Start.';
comment on column op.dur_ns is 'Duration; a negative or missing one is 0 and counted in quality.';
comment on column op.self_ns is 'Time during which it was the innermost op of its thread; sums to the thread''s busy time.';
comment on column op.depth is 'Number of ops around it.';
comment on column op.external_id is 'External id, which names the op in other tools.';
comment on column op.sequence_number is 'Autograd sequence number; null where the op made no node.';
comment on column op.input_dims is 'Shapes of the inputs, JSON; needs record_shapes.';
comment on column op.input_types is 'Element types of the inputs, C++ names, JSON; needs record_shapes.';
comment on column op.input_strides is 'Strides of the inputs, JSON; needs record_shapes and PyTorch 2.2.';
comment on column op.concrete_inputs is 'Values of scalar inputs, JSON list of texts; needs record_shapes and PyTorch 2.1.';
comment on column op.module_id is 'Innermost nn.Module around it, for backward ops that of their forward op.';
comment on column op.step_id is 'Step in which it started.';
comment on column op.phase is 'forward, backward, recompute, optimizer or other.';
comment on column op.forward_op_id is 'For backward ops, the forward op that made the autograd node.';
comment on column op.is_finished is 'False where it was still running when recording stopped.';
comment on column op.frame_id is 'Innermost Python frame around it.';
comment on column op.role is 'What it does in the model.';
comment on column op.role_confidence is 'certain, likely or inferred.';
comment on column op.role_reason is 'What the role was decided by.';
comment on column op.args_json is 'Args without a column of their own, JSON.';

create table frame (frame_id bigint, trace_id bigint, parent_id bigint, name varchar, pid varchar, tid varchar, start_ns bigint, dur_ns bigint, module_id bigint, args_json varchar);
comment on table frame is 'Python function calls; needs with_stack.';
comment on column frame.frame_id is 'Id of the call.';
comment on column frame.trace_id is 'Trace it belongs to.';
comment on column frame.parent_id is 'The calling frame.';
comment on column frame.name is 'file(line): function, or nn.Module: Class_n.';
comment on column frame.pid is 'Process id, as text.';
comment on column frame.tid is 'Thread id, as text.';
comment on column frame.start_ns is 'Start.';
comment on column frame.dur_ns is 'Duration.';
comment on column frame.module_id is 'Innermost nn.Module around it, itself included.';
comment on column frame.args_json is 'Args without a column of their own, JSON.';

create table module (module_id bigint, trace_id bigint, class_name varchar, instance bigint, path varchar, parent_id bigint, kind varchar);
comment on table module is 'nn.Modules that ran while stacks were recorded; needs with_stack.';
comment on column module.module_id is 'Id of the module.';
comment on column module.trace_id is 'Trace it belongs to.';
comment on column module.class_name is 'Class name.';
comment on column module.instance is 'The profiler''s running number of this class''s instances.';
comment on column module.path is 'Classes from the root down, each with its instance number.';
comment on column module.parent_id is 'The module around its first call.';
comment on column module.kind is 'What its class is: attention, mlp, norm, ...; null where the class is not known.';

create table launch (launch_id bigint, trace_id bigint, name varchar, category varchar, pid varchar, tid varchar, start_ns bigint, dur_ns bigint, correlation bigint, op_id bigint, frame_id bigint, step_id bigint, args_json varchar);
comment on table launch is 'Runtime and driver calls that put work on a device: whatever shares its correlation with device work.';
comment on column launch.launch_id is 'Id of the launch.';
comment on column launch.trace_id is 'Trace it belongs to.';
comment on column launch.name is 'Name of the call, such as cudaLaunchKernel.';
comment on column launch.category is 'Category of the row, such as cuda_runtime.';
comment on column launch.pid is 'Process id, as text.';
comment on column launch.tid is 'Thread id, as text.';
comment on column launch.start_ns is 'Start on the host.';
comment on column launch.dur_ns is 'Host time in the call.';
comment on column launch.correlation is 'The number that device work shares with it.';
comment on column launch.op_id is 'Innermost op around it on its thread; never a mere annotation.';
comment on column launch.frame_id is 'Innermost Python frame around it.';
comment on column launch.step_id is 'Step in which it was made.';
comment on column launch.args_json is 'Args without a column of their own, JSON.';

create table kernel (kernel_id bigint, trace_id bigint, kind varchar, name varchar, raw_name varchar, device bigint, stream bigint, start_ns bigint, dur_ns bigint, bytes bigint, grid varchar, block varchar, registers bigint, shared_memory_bytes bigint, occupancy_frac double, correlation bigint, graph_node_id bigint, launch_id bigint, op_id bigint, op_name varchar, module_id bigint, step_id bigint, phase varchar, family varchar, compute_dtype varchar, role varchar, role_confidence varchar, role_reason varchar, call_id bigint, unlinked_reason varchar, unlinked_cause varchar, args_json varchar);
comment on table kernel is 'Device work: kernels, copies and sets.';
comment on column kernel.kernel_id is 'Id of the piece of work; numbered in order of start, those of a large trace part by part.';
comment on column kernel.trace_id is 'Trace it belongs to.';
comment on column kernel.kind is 'kernel, memcpy or memset.';
comment on column kernel.name is 'Name, as the profiler reports it, or demangled where it is mangled.';
comment on column kernel.raw_name is 'The mangled name that the profiler reports; null where name is that.';
comment on column kernel.device is 'Device index.';
comment on column kernel.stream is 'Stream id; 7 is the default stream on CUDA, 0 on ROCm.';
comment on column kernel.start_ns is 'Start on the device; 0 is the trace''s first row, on host or device.';
comment on column kernel.dur_ns is 'Duration on the device.';
comment on column kernel.bytes is 'Bytes copied or set.';
comment on column kernel.grid is 'Blocks in x, y, z, JSON.';
comment on column kernel.block is 'Threads of a block in x, y, z, JSON.';
comment on column kernel.registers is 'Registers a thread.';
comment on column kernel.shared_memory_bytes is 'Static and dynamic shared memory a block.';
comment on column kernel.occupancy_frac is 'The profiler''s estimate; 0 above 48 KiB of shared memory means unknown: see residency.';
comment on column kernel.correlation is 'The number that its launch shares with it.';
comment on column kernel.graph_node_id is 'Node of the CUDA graph it was replayed from; null outside graphs.';
comment on column kernel.launch_id is 'The call that put it on the device; null where that call is not in the trace.';
comment on column kernel.op_id is 'Innermost op around its launch.';
comment on column kernel.op_name is 'Name of that op.';
comment on column kernel.module_id is 'nn.Module of that op.';
comment on column kernel.step_id is 'Step in which it was launched.';
comment on column kernel.phase is 'Phase of its op; other where it has none.';
comment on column kernel.family is 'Kernel family by name; null for a name that is not known.';
comment on column kernel.compute_dtype is 'Number format in which a product (matrix product, convolution, fused attention) multiplies, as the name tells; null for other work and where it does not tell.';
comment on column kernel.role is 'What it does in the model.';
comment on column kernel.role_confidence is 'certain, likely or inferred.';
comment on column kernel.role_reason is 'What the role was decided by.';
comment on column kernel.call_id is 'Attention call it belongs to; null for what a vendor''s attention op does beside the attention, such as writing the KV cache, rotating, normalising or quantising.';
comment on column kernel.unlinked_reason is 'Why it has no op; null where it has one.';
comment on column kernel.unlinked_cause is 'What probably happened to it; null where it has an op.';
comment on column kernel.args_json is 'Args without a column of their own, JSON.';

create table attention_call (call_id bigint, trace_id bigint, op_id bigint, module_id bigint, step_id bigint, layer bigint, phase varchar, mode varchar, implementation varchar, backend varchar, source varchar, b bigint, hq bigint, hkv bigint, nq bigint, nk bigint, d_qk bigint, d_v bigint, dtype varchar, is_causal boolean, causal_alignment varchar, "window" bigint, mask_kind varchar, mask_bytes bigint, dropout double, is_varlen boolean, tokens_q bigint, tokens_k bigint, start_ns bigint, kernels bigint, launches bigint, device_ns bigint, host_ns bigint, pairs bigint, pairs_least bigint, pairs_status varchar, flops bigint, flops_status varchar, bytes bigint, bytes_status varchar);
comment on table attention_call is 'Logical attention calls, forward and backward: one for an SDPA with all below it, one for a naive chain.';
comment on column attention_call.call_id is 'Id of the call; numbered in order of start, those of a large trace part by part and with gaps.';
comment on column attention_call.trace_id is 'Trace it belongs to.';
comment on column attention_call.op_id is 'Outermost op of the call, the first one where it has several; null where only kernels tell of it.';
comment on column attention_call.module_id is 'nn.Module it ran in; for backward calls that of the forward op.';
comment on column attention_call.step_id is 'Step in which it started.';
comment on column attention_call.layer is 'Number of the layer, from 0: the profiler''s number of the block''s class, else of the attention module''s; null without modules.';
comment on column attention_call.phase is 'forward, backward or recompute.';
comment on column attention_call.mode is 'train in a step with a backward pass, else decode for one query a sequence, prefill for several; null where that is not known.';
comment on column attention_call.implementation is 'What was called: sdpa, varlen_attn, mha_fast_path, flex, flash_attn, flash_attn_3, xformers, vllm, sglang, aiter, flashinfer, sage, naive (a chain of products around a softmax), or generic (an op that is not known, read by its name and the shapes of its inputs).';
comment on column attention_call.backend is 'SDPA backend that ran (flash, efficient, cudnn, math, overrideable, mps); of other implementations the family of their fused kernel.';
comment on column attention_call.source is 'What it was found by: op, chain (ops of fitting shapes), autograd (the nodes of a forward call), kernel (its name alone: an estimate, without shapes) or capture (a replayed kernel, with what the capture of its graph says of it).';
comment on column attention_call.b is 'Sequences.';
comment on column attention_call.hq is 'Query heads.';
comment on column attention_call.hkv is 'Key and value heads, as the call was given them: heads repeated before count.';
comment on column attention_call.nq is 'Queries a sequence; of packed sequences those of the longest.';
comment on column attention_call.nk is 'Keys a sequence; of packed sequences those of the longest.';
comment on column attention_call.d_qk is 'Head dim of queries and keys, before padding.';
comment on column attention_call.d_v is 'Head dim of values.';
comment on column attention_call.dtype is 'Element type of the queries the core was given, by torch''s name: autocast''s, where it cast them.';
comment on column attention_call.is_causal is 'Whether a causal mask was asked for; null where that was not recorded, or a dense mask may be one.';
comment on column attention_call.causal_alignment is 'top_left or bottom_right: where the causal mask starts if queries and keys differ in number; null without one.';
comment on column attention_call.window is 'Sliding window in keys, the query''s own included; null without one.';
comment on column attention_call.mask_kind is 'none, causal, window, boolean or additive (a dense mask); null where it is not known.';
comment on column attention_call.mask_bytes is 'Bytes of a dense mask that was read, repeated dims once.';
comment on column attention_call.dropout is 'Dropout probability.';
comment on column attention_call.is_varlen is 'Whether sequences were packed.';
comment on column attention_call.tokens_q is 'Query tokens over all sequences.';
comment on column attention_call.tokens_k is 'Key tokens over all sequences; null where they lie in a cache.';
comment on column attention_call.start_ns is 'Start of its first op, else of its first kernel.';
comment on column attention_call.kernels is 'Pieces of device work that are the attention''s own, as kernel.call_id tells.';
comment on column attention_call.launches is 'Launches; that of a graph counts for each of its calls.';
comment on column attention_call.device_ns is 'Summed duration of its device work; null where it has none.';
comment on column attention_call.host_ns is 'Host time of its outermost ops, whatever else they do; null where there are none.';
comment on column attention_call.pairs is 'Query-key pairs that no mask of known shape hides, over all sequences, one head; where estimated an upper bound.';
comment on column attention_call.pairs_least is 'The least they can be: pairs where exact; null where they are not known.';
comment on column attention_call.pairs_status is 'exact, estimated (a dense mask''s content or packed lengths are not recorded) or not_derivable.';
comment on column attention_call.flops is 'Floating-point operations on those pairs: 2 hq pairs (d_qk + d_v) forward, 2 hq pairs (3 d_qk + 2 d_v) backward, or 2 d_qk where scores are not computed anew.';
comment on column attention_call.flops_status is 'exact, estimated or not_derivable, as pairs_status.';
comment on column attention_call.bytes is 'Bytes that must move: forward Q, K, V and O once and a dense mask; backward Q, K, V, O, dO and log-sum-exp read, dQ, dK and dV written. Keys that no query sees do not count.';
comment on column attention_call.bytes_status is 'exact, estimated or not_derivable.';

create table collective (collective_id bigint, trace_id bigint, op_id bigint, name varchar, source varchar, group_name varchar, group_description varchar, group_size bigint, group_ranks varchar, sequence_number bigint, src_rank bigint, dst_rank bigint, is_async boolean, in_elements bigint, out_elements bigint, dtype varchar, bytes bigint, bus_factor double, kernel_id bigint, kernels bigint, step_id bigint, phase varchar, start_ns bigint, dur_ns bigint);
comment on table collective is 'Collective operations between ranks: what was asked for, and its device work.';
comment on column collective.collective_id is 'Id of the collective.';
comment on column collective.trace_id is 'Trace it belongs to.';
comment on column collective.op_id is 'Op that asked for it; null where only device work tells of it.';
comment on column collective.name is 'all_reduce, all_gather, reduce_scatter, broadcast, send, ...';
comment on column collective.source is 'What it was found by: record (record_param_comms), op, annotation, or kernel (device work no op asked for).';
comment on column collective.group_name is 'Name of the process group.';
comment on column collective.group_description is 'Description of the group, such as default_pg.';
comment on column collective.group_size is 'Ranks in the group.';
comment on column collective.group_ranks is 'Ranks of the group, as the trace writes them; long lists are cut with ….';
comment on column collective.sequence_number is 'Number of the collective within its group; recorded since PyTorch 2.12.';
comment on column collective.src_rank is 'Rank that sends.';
comment on column collective.dst_rank is 'Rank that receives.';
comment on column collective.is_async is 'Whether the caller did not wait.';
comment on column collective.in_elements is 'Elements given.';
comment on column collective.out_elements is 'Elements received.';
comment on column collective.dtype is 'Element type, as torch names it (bfloat16).';
comment on column collective.bytes is 'Bytes of the message: what is received for all_gather, scatter and recv, else what is given; null where elements or type are unknown.';
comment on column collective.bus_factor is 'What nccl-tests multiplies algorithm bandwidth by to get bus bandwidth, for rings and trees; null where the group''s size is unknown or the collective has no factor.';
comment on column collective.kernel_id is 'First piece of its device work.';
comment on column collective.kernels is 'Pieces of its device work.';
comment on column collective.step_id is 'Step of its device work, else of its op.';
comment on column collective.phase is 'forward, backward, recompute, optimizer or other.';
comment on column collective.start_ns is 'Start of its device work, else of its op.';
comment on column collective.dur_ns is 'To the end of the last piece of its device work, else of its op; waiting for other ranks included.';

create table allocation (allocation_id bigint, trace_id bigint, device varchar, address bigint, bytes bigint, start_ns bigint, end_ns bigint, start_sample_id bigint, end_sample_id bigint, step_id bigint, op_id bigint, free_op_id bigint, module_id bigint, frame_id bigint, phase varchar, role varchar, category varchar, category_reason varchar);
comment on table allocation is 'Lifetimes of memory, from allocator rows; needs profile_memory.';
comment on column allocation.allocation_id is 'Id of the allocation.';
comment on column allocation.trace_id is 'Trace it belongs to.';
comment on column allocation.device is 'Device, such as cuda:0.';
comment on column allocation.address is 'Address.';
comment on column allocation.bytes is 'Size as the allocator rounded it.';
comment on column allocation.start_ns is 'When it was made; null where that was before the recording.';
comment on column allocation.end_ns is 'When it was freed; null where it outlived the recording.';
comment on column allocation.start_sample_id is 'memory_sample after it was made; null where that was before the recording.';
comment on column allocation.end_sample_id is 'memory_sample after it was freed; null where it outlived the recording. It is live from start_sample_id up to, not including, this one.';
comment on column allocation.step_id is 'Step in which the op that made it started.';
comment on column allocation.op_id is 'Op that made it.';
comment on column allocation.free_op_id is 'Op that freed it.';
comment on column allocation.module_id is 'nn.Module that made it.';
comment on column allocation.frame_id is 'Python frame that made it.';
comment on column allocation.phase is 'Phase in which it was made.';
comment on column allocation.role is 'Role of the op that made it.';
comment on column allocation.category is 'parameter, gradient, activation, ...; this version does not say.';
comment on column allocation.category_reason is 'What the category was decided by.';

create table memory_sample (sample_id bigint, trace_id bigint, device varchar, time_ns bigint, allocated_bytes bigint, reserved_bytes bigint, args_json varchar);
comment on table memory_sample is 'The allocator''s own totals after each of its rows; needs profile_memory.';
comment on column memory_sample.sample_id is 'Id of the sample; samples are numbered in the order of the allocator''s calls.';
comment on column memory_sample.trace_id is 'Trace it belongs to.';
comment on column memory_sample.device is 'Device, such as cuda:0; cpu for host memory.';
comment on column memory_sample.time_ns is 'Host time of the allocator call.';
comment on column memory_sample.allocated_bytes is 'Bytes allocated after it; null where the exporter wrote no totals.';
comment on column memory_sample.reserved_bytes is 'Bytes the caching allocator held after it; 0 on the CPU.';
comment on column memory_sample.args_json is 'Args without a column of their own, JSON.';

create table batch (trace_id bigint, step_id bigint, ordinal bigint, sequences bigint, padded_length bigint, lengths bigint[], tokens bigint, source varchar, mask_kind varchar, implementation varchar, useful_tokens bigint, computed_tokens bigint, useful_pairs bigint, computed_pairs bigint, pairs_status varchar);
comment on table batch is 'True lengths of the sequences a step worked on, from facts that `tracekit capture` stores.';
comment on column batch.trace_id is 'Trace it belongs to.';
comment on column batch.step_id is 'Step it was used in.';
comment on column batch.ordinal is 'Number of the batch within the step.';
comment on column batch.sequences is 'Sequences.';
comment on column batch.padded_length is 'Tokens a sequence after padding.';
comment on column batch.lengths is 'True lengths.';
comment on column batch.tokens is 'Sum of the true lengths: key tokens.';
comment on column batch.source is 'Where the lengths come from.';
comment on column batch.mask_kind is 'What the mask lets be seen: causal, causal_padding, padding or none.';
comment on column batch.implementation is 'Attention implementation that ran; null where its calls differ or carry no shapes.';
comment on column batch.useful_tokens is 'Query tokens that are real: all of lengths, or one a sequence in a decode step.';
comment on column batch.computed_tokens is 'Query tokens that the linear layers computed, padding included.';
comment on column batch.useful_pairs is 'Query-key pairs of real tokens under the mask, over all sequences, one head of one layer.';
comment on column batch.computed_pairs is 'Query-key pairs that the implementation that ran computed, one head of one layer.';
comment on column batch.pairs_status is 'Of computed_pairs: exact, estimated (a lower bound, tiles on the diagonal are computed whole) or not_derivable.';

create table workload (workload_id bigint, trace_id bigint, label map(varchar, varchar), start_ns bigint, dur_ns bigint);
comment on table workload is 'Labels of what was run, from facts.';
comment on column workload.workload_id is 'Id of the workload.';
comment on column workload.trace_id is 'Trace it belongs to.';
comment on column workload.label is 'Name and value of each label.';
comment on column workload.start_ns is 'Start.';
comment on column workload.dur_ns is 'Duration.';

create table other_event (trace_id bigint, category varchar, name varchar, phase_letter varchar, start_ns bigint, dur_ns bigint, pid varchar, tid varchar, args_json varchar);
comment on table other_event is 'Every event that is in no other table, kept whole.';
comment on column other_event.trace_id is 'Trace it belongs to.';
comment on column other_event.category is 'Category in lower case; empty for metadata.';
comment on column other_event.name is 'Name.';
comment on column other_event.phase_letter is 'The trace format''s ph: X complete, i instant, M metadata, ...';
comment on column other_event.start_ns is 'Start; null where it has none.';
comment on column other_event.dur_ns is 'Duration; null where it has none.';
comment on column other_event.pid is 'Process id, as text.';
comment on column other_event.tid is 'Thread id, as text.';
comment on column other_event.args_json is 'Its args, JSON.';

create table quality (trace_id bigint, check_name varchar, severity varchar, count bigint, share_frac double, first_offset bigint, message varchar);
comment on table quality is 'What was noticed while loading that an answer may depend on.';
comment on column quality.trace_id is 'Trace it belongs to.';
comment on column quality.check_name is 'What was looked for.';
comment on column quality.severity is 'info, warn or bad.';
comment on column quality.count is 'How often it was found.';
comment on column quality.share_frac is 'Share it has: of device time for kernels, of events otherwise; null where it has none.';
comment on column quality.first_offset is 'Byte of the file at which it was first found; null where it is not known.';
comment on column quality.message is 'What it means, in one sentence.';

create table device_spec (trace_id bigint, name varchar, flops_per_s map(varchar, double), bytes_per_s double, cache_bytes bigint, status varchar, reason varchar, source varchar);
comment on table device_spec is 'What the device of a trace can do at most, from what tracekit knows of GPUs or --device-spec; made when a run is opened.';
comment on column device_spec.trace_id is 'Trace it belongs to.';
comment on column device_spec.name is 'Name of the device whose peaks these are; null where none is known.';
comment on column device_spec.flops_per_s is 'Dense peaks by number format as kernel.compute_dtype has it, accumulated in fp32; null for a format whose peak is not known.';
comment on column device_spec.bytes_per_s is 'Peak bandwidth of its memory.';
comment on column device_spec.cache_bytes is 'Last level of cache that the whole device shares.';
comment on column device_spec.status is 'exact, estimated (a device without a name, a MIG slice) or not_derivable.';
comment on column device_spec.reason is 'What it was found by, or why there is none.';
comment on column device_spec.source is 'Who says so.';

create table residency (trace_id bigint, block varchar, registers bigint, shared_memory_bytes bigint, threads bigint, resident_blocks bigint, limits varchar, block_frac double, status varchar, reason varchar);
comment on table residency is 'How many blocks of such a launch a multiprocessor holds at once: a row for each block size, registers and shared memory of a trace; made when a run is opened.';
comment on column residency.trace_id is 'Trace it belongs to.';
comment on column residency.block is 'Threads of a block in x, y, z, JSON, as kernel.block.';
comment on column residency.registers is 'Registers a thread, as kernel.registers.';
comment on column residency.shared_memory_bytes is 'Shared memory a block, as kernel.shared_memory_bytes.';
comment on column residency.threads is 'Threads of a block.';
comment on column residency.resident_blocks is 'Blocks that a multiprocessor holds at once.';
comment on column residency.limits is 'What keeps it from holding more: threads, blocks, registers, shared memory; several where they bind alike.';
comment on column residency.block_frac is 'Share of a multiprocessor''s threads that one block has.';
comment on column residency.status is 'estimated (clusters and carve-out are not in a trace) or not_derivable.';
comment on column residency.reason is 'Why it is not derivable.';

create table product (op_id bigint, trace_id bigint, batch bigint, m bigint, n bigint, k bigint, dtype varchar, flops bigint, flops_status varchar, bytes bigint, bytes_status varchar, reason varchar);
comment on table product is 'Matrix products (m, k) x (k, n), batch times, by the innermost ops that compute them.';
comment on column product.op_id is 'The op.';
comment on column product.trace_id is 'Trace it belongs to.';
comment on column product.batch is 'Products in one call.';
comment on column product.m is 'Rows of the first factor; of a linear layer the tokens.';
comment on column product.n is 'Columns of the second factor; of a linear layer its outputs.';
comment on column product.k is 'Length of the sums; of a linear layer its inputs.';
comment on column product.dtype is 'Number format of both factors; null where they differ.';
comment on column product.flops is 'Floating-point operations of one call: 2 batch m n k.';
comment on column product.flops_status is 'exact, estimated (an op that is not ATen''s) or not_derivable.';
comment on column product.bytes is 'Bytes one call must move: factors, result and what is added, each once.';
comment on column product.bytes_status is 'exact, estimated (type of the result, or a matrix to be added) or not_derivable.';
comment on column product.reason is 'Why sizes are not derivable, or an estimate.';

create table device_wait (kernel_id bigint, trace_id bigint, step_id bigint, free_ns bigint, before_id bigint, idle_ns bigint, launched_ns bigint);
comment on table device_wait is 'Since when a device had nothing to do before each kernel; with --phase, work of other phases is nothing. Made when a question asks.';
comment on column device_wait.kernel_id is 'The kernel.';
comment on column device_wait.trace_id is 'Trace it belongs to.';
comment on column device_wait.step_id is 'Step it was launched in.';
comment on column device_wait.free_ns is 'When all work that its device began before it had ended; null for the first. Work that begins at once is in the order of its ends.';
comment on column device_wait.before_id is 'The kernel that ended then, the last to begin of several.';
comment on column device_wait.idle_ns is 'Time from there to its start, 0 if it overlaps; null for the first.';
comment on column device_wait.launched_ns is 'When its launch call began; null without one.';

create view kernel_of_any_step as select * from kernel;
comment on view kernel_of_any_step is 'kernel, whatever step its work was launched in and --steps selects: for what ran in a step''s window.';

create view launch_of_any_step as select * from launch;
comment on view launch_of_any_step is 'launch, whatever step and phase it was made in: for what started the work of a step''s window.';

create view other_event_of_any_step as select * from other_event;
comment on view other_event_of_any_step is 'other_event, whatever step it lies in: for calls that reach into a step''s window.';

create view device_wait_of_any_step as select * from device_wait;
comment on view device_wait_of_any_step is 'device_wait, whatever step its kernel was launched in: for what ran in a step''s window.';

create view cpu_op as select * from op where (select not bool_or(has_device) from trace);
comment on view cpu_op is 'op where no device was recorded, else empty: what stands in for the kernels.';

create view work as
select
    k.kernel_id as work_id,
    k.trace_id,
    t.rank,
    'device' as source,
    k.kind,
    k.name,
    k.device,
    k.stream,
    k.start_ns,
    k.dur_ns,
    k.op_id,
    k.op_name,
    k.module_id,
    m.class_name as module_class,
    m.path as module_path,
    k.step_id,
    s.number as step,
    k.phase,
    k.family,
    k.role,
    k.role_confidence,
    k.role_reason,
    k.call_id
from kernel as k
join trace as t using (trace_id)
left join module as m on m.module_id = k.module_id
left join step as s on s.step_id = k.step_id
union all by name
select
    o.op_id as work_id,
    o.trace_id,
    t.rank,
    'cpu' as source,
    o.kind,
    o.name,
    null::bigint as device,
    null::bigint as stream,
    o.start_ns,
    o.self_ns as dur_ns,
    o.op_id,
    o.name as op_name,
    o.module_id,
    m.class_name as module_class,
    m.path as module_path,
    o.step_id,
    s.number as step,
    o.phase,
    null::varchar as family,
    o.role,
    o.role_confidence,
    o.role_reason,
    null::bigint as call_id
from cpu_op as o
join trace as t using (trace_id)
left join module as m on m.module_id = o.module_id
left join step as s on s.step_id = o.step_id
where o.kind <> 'annotation'
;

comment on view work is 'What questions count: the kernels of a run with their roles; where no device was recorded, the self time of CPU ops.';
comment on column work.work_id is 'kernel_id, or op_id where there is no device.';
comment on column work.trace_id is 'Trace it belongs to.';
comment on column work.rank is 'Rank of that trace.';
comment on column work.source is 'device, or cpu where no device was recorded.';
comment on column work.kind is 'kernel, memcpy or memset; the kind of op where there is no device.';
comment on column work.name is 'Kernel name; op name where there is no device.';
comment on column work.device is 'Device index.';
comment on column work.stream is 'Stream id.';
comment on column work.start_ns is 'Start.';
comment on column work.dur_ns is 'Duration on the device; self time on the CPU where there is no device.';
comment on column work.op_id is 'Innermost op around its launch.';
comment on column work.op_name is 'Name of that op.';
comment on column work.module_id is 'nn.Module of that op.';
comment on column work.module_class is 'Class of that module.';
comment on column work.module_path is 'Path of that module.';
comment on column work.step_id is 'Step it belongs to.';
comment on column work.step is 'Number of that step; null where steps were not marked.';
comment on column work.phase is 'forward, backward, recompute, optimizer or other.';
comment on column work.family is 'Kernel family; null for an unknown name and on the CPU.';
comment on column work.role is 'What it does in the model.';
comment on column work.role_confidence is 'certain, likely or inferred.';
comment on column work.role_reason is 'What the role was decided by.';
comment on column work.call_id is 'Attention call it belongs to, as kernel has it.';

create view gemm_call as
with
    counted as (
        select
            trace_id, kernel_id as work_id, name, dur_ns, op_id, op_name, step_id, phase, family, compute_dtype
        from kernel
        union all by name
        select trace_id, op_id as work_id, name, self_ns as dur_ns, op_id, name as op_name, step_id, phase
        from cpu_op
        where kind <> 'annotation'
    ),
    pieces as (
        select c.*, p.op_id is not null as is_op
        from counted as c
        left join (select op_id from product) as p on p.op_id = c.op_id
        where p.op_id is not null or c.family like '%gemm%' or c.family like '%gemv%'
    ),
    calls as (
        select
            trace_id,
            case when is_op then op_id end as op_id,
            case when not is_op then work_id end as work_id,
            any_value(op_name) as op_name,
            any_value(pieces.op_id) as asked_by,
            any_value(step_id) as step_id,
            any_value(phase) as phase,
            count(*) as pieces,
            sum(dur_ns)::bigint as work_ns,
            first(name order by dur_ns desc, name) as kernel,
            first(family order by dur_ns desc, name) as family,
            first(compute_dtype order by dur_ns desc, compute_dtype) filter (where compute_dtype is not null) as compute_dtype
        from pieces
        group by all
    )
select
    c.trace_id,
    c.op_id,
    c.work_id,
    c.op_name,
    c.step_id,
    c.phase,
    p.batch,
    p.m,
    p.n,
    p.k,
    coalesce(c.compute_dtype, p.dtype) as dtype,
    case when c.compute_dtype is not null then 'kernel' when p.dtype is not null then 'inputs' end as dtype_source,
    c.kernel,
    c.family,
    c.pieces,
    c.work_ns,
    p.flops,
    coalesce(p.flops_status, 'not_derivable') as flops_status,
    p.bytes,
    coalesce(p.bytes_status, 'not_derivable') as bytes_status,
    case
        when c.op_id is not null
        then p.reason
        when c.op_name is null
        then 'no op asked for it in the trace'
        when c.asked_by is null
        then 'its op is known from the capture of its graph, shapes are not'
        else 'its op has no shapes of a product'
    end as reason
from calls as c
left join product as p on p.op_id = c.op_id
;

comment on view gemm_call is 'Matrix products: one row an op with all work that it launched, copies and sets included; products that no such op asked for a row a kernel.';
comment on column gemm_call.trace_id is 'Trace it belongs to.';
comment on column gemm_call.op_id is 'The op; null where a kernel alone tells of it.';
comment on column gemm_call.work_id is 'The work where no op tells of it; null where one does.';
comment on column gemm_call.op_name is 'Name of the op.';
comment on column gemm_call.step_id is 'Step it belongs to.';
comment on column gemm_call.phase is 'forward, backward, recompute, optimizer or other.';
comment on column gemm_call.batch is 'Products in the call.';
comment on column gemm_call.m is 'Rows of the first factor.';
comment on column gemm_call.n is 'Columns of the second factor.';
comment on column gemm_call.k is 'Length of the sums.';
comment on column gemm_call.dtype is 'Number format in which it multiplies.';
comment on column gemm_call.dtype_source is 'What tells it: kernel (its name) or inputs (then fp32 may run as tf32).';
comment on column gemm_call.kernel is 'Kernel of most of its time.';
comment on column gemm_call.family is 'Family of that kernel.';
comment on column gemm_call.pieces is 'Pieces of work.';
comment on column gemm_call.work_ns is 'Summed duration of its work.';
comment on column gemm_call.flops is 'Floating-point operations: 2 batch m n k.';
comment on column gemm_call.flops_status is 'exact, estimated or not_derivable.';
comment on column gemm_call.bytes is 'Bytes that must move: factors, result and what is added, each once.';
comment on column gemm_call.bytes_status is 'exact, estimated or not_derivable.';
comment on column gemm_call.reason is 'Why sizes are not derivable, or an estimate.';

create view roof_call as
with
    starved as materialized(
        select kernel_id, idle_ns
        from device_wait_of_any_step
        where launched_ns >= free_ns and idle_ns > 0
    ),
    gemms as materialized(from gemm_call),
    of_op as (
        select k.op_id, sum(s.idle_ns)::bigint as idle_ns, max(list_product(try_cast(k.grid as bigint[]))) as blocks
        from kernel as k
        left join starved as s on s.kernel_id = k.kernel_id
        where k.op_id in (select op_id from gemms)
        group by k.op_id
    ),
    of_work as (
        select k.kernel_id, s.idle_ns, list_product(try_cast(k.grid as bigint[])) as blocks
        from kernel as k
        left join starved as s on s.kernel_id = k.kernel_id
        where k.kernel_id in (select work_id from gemms)
    ),
    of_call as (
        select
            k.call_id,
            sum(s.idle_ns)::bigint as idle_ns,
            max(list_product(try_cast(k.grid as bigint[]))) as blocks,
            first(k.name order by k.dur_ns desc, k.name) as kernel,
            first(k.compute_dtype order by k.dur_ns desc, k.compute_dtype)
            filter (where k.compute_dtype is not null) as compute_dtype
        from kernel as k
        left join starved as s on s.kernel_id = k.kernel_id
        where k.call_id is not null
        group by k.call_id
    ),
    calls as (
        select
            'gemm' as kind,
            g.trace_id,
            null::bigint as call_id,
            g.op_name as name,
            g.phase,
            'B=' || g.batch || ' M=' || g.m || ' N=' || g.n || ' K=' || g.k as sizes,
            g.m,
            g.n,
            g.k,
            g.batch,
            g.dtype,
            g.dtype_source,
            g.kernel,
            g.family,
            g.pieces,
            g.work_ns,
            g.flops,
            g.flops_status,
            g.bytes,
            g.bytes_status,
            case when g.flops is not null then '2 B M N K' end as flop_count,
            coalesce(o.idle_ns, w.idle_ns) as idle_ns,
            coalesce(o.blocks, w.blocks) as blocks,
            g.reason
        from gemms as g
        left join of_op as o on o.op_id = g.op_id
        left join of_work as w on w.kernel_id = g.work_id
        union all by name
        select
            'attention' as kind,
            a.trace_id,
            a.call_id,
            concat_ws('/', a.implementation, a.backend) as name,
            a.phase,
            'B=' || a.b || ' H=' || a.hq || '/' || a.hkv || ' Q=' || a.nq || ' K=' || a.nk || ' D=' || a.d_qk
            || case when a.d_v <> a.d_qk then '/' || a.d_v else '' end as sizes,
            coalesce(c.compute_dtype, regexp_replace(a.dtype, '^float8_.*', 'float8')) as dtype,
            case when c.compute_dtype is not null then 'kernel' when a.dtype is not null then 'inputs' end
            as dtype_source,
            c.kernel,
            a.kernels as pieces,
            case when t.has_device then a.device_ns else a.host_ns end as work_ns,
            a.flops,
            a.flops_status,
            a.bytes,
            a.bytes_status,
            case
                when a.flops is null
                then null
                when a.is_varlen
                then 'packed'
                when a."window" is not null
                then 'window'
                when a.is_causal
                then 'causal'
                else 'full'
            end as flop_count,
            c.idle_ns,
            c.blocks,
            null::varchar as reason
        from attention_call as a
        join trace as t on t.trace_id = a.trace_id
        left join of_call as c on c.call_id = a.call_id
    ),
    timed as (
        select
            c.*,
            s.flops_per_s[c.dtype] as peak_flops_per_s,
            s.bytes_per_s as peak_bytes_per_s,
            1e9 * c.flops / s.flops_per_s[c.dtype] as compute_ns,
            1e9 * c.bytes / s.bytes_per_s as memory_ns,
            t.sm_count,
            s.cache_bytes,
            s.reason as spec_reason
        from calls as c
        join trace as t on t.trace_id = c.trace_id
        left join device_spec as s on s.trace_id = c.trace_id
    )
select
    kind,
    trace_id,
    call_id,
    name,
    phase,
    sizes,
    m,
    n,
    k,
    batch,
    dtype,
    dtype_source,
    kernel,
    family,
    pieces,
    work_ns,
    idle_ns,
    flops,
    flops_status,
    flop_count,
    bytes,
    bytes_status,
    peak_flops_per_s,
    peak_bytes_per_s,
    compute_ns,
    memory_ns,
    case
        when idle_ns > work_ns
        then 'launch'
        when compute_ns is null or memory_ns is null or coalesce(work_ns, 0) <= 0
        then null
        when greatest(compute_ns, memory_ns) < 0.25 * work_ns
        then case when work_ns < 10000 * pieces or blocks < sm_count then 'latency' else 'neither' end
        when compute_ns >= memory_ns
        then 'compute'
        else 'memory'
    end as bound,
    case
        when compute_ns > work_ns
        then 'operations above peak'
        when memory_ns > work_ns and bytes <= cache_bytes
        then 'bytes above bandwidth: they fit in the cache'
        when memory_ns > work_ns
        then 'bytes above bandwidth'
    end as suspicion,
    case
        when flops is null
        then
            coalesce(
                reason,
                case
                    when sizes is null
                    then 'the shapes of its inputs are not known'
                    else 'its operations are not derivable'
                end
            )
        when peak_bytes_per_s is null
        then coalesce(spec_reason, 'the bandwidth is not known')
        when dtype is null
        then 'in which format it multiplies is not known'
        when peak_flops_per_s is null
        then 'no peak of ' || dtype || ' is known of this device'
        else reason
    end as reason
from timed
;

comment on view roof_call is 'Matrix products and attention calls against what their device can do: a call a row. A product of a naive attention is in both kinds.';
comment on column roof_call.kind is 'gemm or attention.';
comment on column roof_call.trace_id is 'Trace it belongs to.';
comment on column roof_call.call_id is 'The attention call; null for a product.';
comment on column roof_call.name is 'Op of a product; implementation and backend of an attention.';
comment on column roof_call.phase is 'forward, backward, recompute, optimizer or other.';
comment on column roof_call.sizes is 'Sizes as text: B batch, M, N, K of products; B sequences, H query heads/key heads, Q queries, K keys, D head dim of attention.';
comment on column roof_call.m is 'Of a product as gemm_call has it; null for attention, as n, k and batch.';
comment on column roof_call.n is 'Of a product.';
comment on column roof_call.k is 'Of a product.';
comment on column roof_call.batch is 'Of a product.';
comment on column roof_call.dtype is 'Number format in which it multiplies.';
comment on column roof_call.dtype_source is 'What tells it: kernel (the name of its longest product) or inputs (then fp32 may run as tf32).';
comment on column roof_call.kernel is 'Kernel of most of its time.';
comment on column roof_call.family is 'Family of that kernel, of a product; null for attention.';
comment on column roof_call.pieces is 'Pieces of work.';
comment on column roof_call.work_ns is 'Summed duration of its device work; host time where there is no device.';
comment on column roof_call.idle_ns is 'Time that the device stood idle before its kernels because they were not launched yet; null where it did not.';
comment on column roof_call.flops is 'Floating-point operations.';
comment on column roof_call.flops_status is 'exact, estimated or not_derivable.';
comment on column roof_call.flop_count is 'Which count: 2 B M N K; for attention the pairs of a causal mask, of a window, of packed sequences, or full (a dense mask does not lessen it).';
comment on column roof_call.bytes is 'Bytes that must move at least.';
comment on column roof_call.bytes_status is 'exact, estimated or not_derivable.';
comment on column roof_call.peak_flops_per_s is 'Dense peak of its device in that format.';
comment on column roof_call.peak_bytes_per_s is 'Peak bandwidth of its device''s memory.';
comment on column roof_call.compute_ns is 'Time its operations take at that peak.';
comment on column roof_call.memory_ns is 'Time its bytes take at that bandwidth.';
comment on column roof_call.bound is 'What limits it: launch (the device waited for its launches longer than it worked), latency (the peaks would allow a quarter of the time, and its kernels take under 10 µs each or have fewer blocks than the device has multiprocessors), neither (the peaks would allow a quarter of the time, and it is not latency: more bytes than must move, as in an unfused attention, or other instructions), else the longer of compute_ns and memory_ns; null without peaks.';
comment on column roof_call.suspicion is 'What can''t be: more than a peak; null where there is no such thing.';
comment on column roof_call.reason is 'Why there are no rates or no peaks; null where there are.';

create macro roof_signature(by_op, rows_of := 'roof_call') as table
with
    keyed as (
        select
            kind,
            case when by_op then name end as name,
            case when by_op then phase end as phase,
            sizes,
            m,
            n,
            k,
            batch,
            flop_count,
            dtype,
            kernel,
            work_ns,
            flops,
            flops_status,
            bytes,
            bytes_status,
            peak_flops_per_s,
            peak_bytes_per_s,
            bound,
            suspicion,
            reason
        from query_table(rows_of)
    ),
    alike as (
        select
            kind,
            name,
            phase,
            sizes,
            m,
            n,
            k,
            batch,
            flop_count,
            dtype,
            peak_flops_per_s,
            peak_bytes_per_s,
            bound,
            suspicion,
            reason,
            count(*) as calls,
            count(work_ns) as timed,
            count(flops) as counted,
            count(bytes) as sized,
            sum(work_ns) as work_ns,
            max(work_ns) as longest_ns,
            sum(flops) as flops,
            max(flops_status) as flops_status,
            sum(bytes) as bytes,
            max(bytes_status) as bytes_status,
            first(kernel order by work_ns desc, kernel) as kernel
        from keyed
        group by all
    ),
    bounded as (
        select
            *,
            case
                when bound is not null
                then sum(work_ns) over (partition by kind, name, phase, sizes, flop_count, dtype, bound)
            end as bound_ns
        from alike
    ),
    signatures as (
        select
            kind,
            name,
            phase,
            sizes,
            m,
            n,
            k,
            batch,
            flop_count,
            dtype,
            peak_flops_per_s,
            peak_bytes_per_s,
            sum(calls)::bigint as calls,
            sum(work_ns)::bigint as work_ns,
            sum(work_ns) / nullif(sum(timed), 0) as mean_ns,
            round(sum(flops) / nullif(sum(counted), 0))::bigint as call_flops,
            max(flops_status) as flops_status,
            round(sum(bytes) / nullif(sum(sized), 0))::bigint as call_bytes,
            max(bytes_status) as bytes_status,
            sum(flops) as flops,
            sum(bytes) as bytes,
            first(bound order by bound_ns desc nulls last, bound) as bound,
            nullif(array_to_string(list_sort(list_distinct(list(suspicion))), '; '), '') as suspicion,
            nullif(array_to_string(list_sort(list_distinct(list(reason))), '; '), '') as reason,
            first(kernel order by longest_ns desc, kernel) as kernel
        from bounded
        group by all
    ),
    held as (
        select
            *,
            1e9 * flops / peak_flops_per_s as compute_ns,
            1e9 * bytes / peak_bytes_per_s as memory_ns
        from signatures
    ),
    whole as materialized(select nullif(sum(dur_ns), 0) as ns from work)
select
    kind,
    name,
    phase,
    sizes,
    m,
    n,
    k,
    batch,
    flop_count,
    dtype,
    calls,
    work_ns,
    work_ns / (select ns from whole) as share_frac,
    mean_ns,
    call_flops,
    flops_status,
    call_bytes,
    bytes_status,
    flops / nullif(bytes, 0) as intensity_flops_per_byte,
    1e9 * flops / nullif(work_ns, 0) as achieved_flops_per_s,
    1e9 * bytes / nullif(work_ns, 0) as achieved_bytes_per_s,
    peak_flops_per_s,
    peak_bytes_per_s,
    compute_ns / nullif(work_ns, 0) as peak_frac,
    memory_ns / nullif(work_ns, 0) as bandwidth_frac,
    case
        when compute_ns is not null and memory_ns is not null
        then greatest(compute_ns, memory_ns) / nullif(work_ns, 0)
    end as roof_frac,
    bound,
    suspicion,
    reason,
    kernel
from held
;

comment on macro table roof_signature is 'roof_call by signature: calls of the same sizes, format and peaks a row, by their op and phase too if by_op, with their rates; rows_of names the view or CTE that holds the rows of roof_call. Columns as in roof_call, and those that gemm_calls explains.';
